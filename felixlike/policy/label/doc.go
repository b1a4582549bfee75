// Package label has label sets, label selectors, and the indexes that find one by the
// other. Equal label sets are stored once, and so are equal selectors. The indexes find
// the candidates for a match without a try of every selector or every label set.
//
// It knows no pods and no policies. Tables test it here; the tests of felixlike/policy
// compare random clusters with felixlike/policy/oracle, and count the tries.
package label
