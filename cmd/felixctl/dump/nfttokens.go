package dump

import "slices"

// nftTokens are the words of a rule that are still to be parsed.
type nftTokens struct{ words []string }

// next takes n words, or none.
func (t *nftTokens) next(n int) []string {
	if len(t.words) < n {
		return nil
	}
	out := t.words[:n]
	t.words = t.words[n:]
	return out
}

// accept takes the words if they come next.
func (t *nftTokens) accept(words ...string) bool {
	if len(t.words) < len(words) || !slices.Equal(t.words[:len(words)], words) {
		return false
	}
	t.words = t.words[len(words):]
	return true
}

// not takes "!=" or "==", if there is one.
func (t *nftTokens) not() bool {
	if t.accept("!=") {
		return true
	}
	t.accept("==")
	return false
}
