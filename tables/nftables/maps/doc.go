// Package maps programs one private nftables table whose rules are few and hardly change, and whose sets and maps are large: those
// of Services, with more than 100,000 elements.
//
// It is not nftables.Table: that one compares typed members, closes what the kernel refuses by chains that drop, and searches for
// the object that a refusal does not name. Elements here are bytes of a fixed form, which the kernel has no reason to refuse one by
// one, and there are too many to keep twice. So an Apply is all or nothing: one transaction of the difference. Only a table that
// does not exist yet comes in several, its base chains in the last one: until then no packet enters it.
//
// The desired state is kept once. A change of an element records what the kernel has; a full read compares element by element with
// the desired state and keeps none. Watch reports foreign changes, and the next Apply reads what they name.
//
// The package owns its table, knows no Service and no policy. It is tested on the real kernel in fresh network namespaces.
package maps
