package measure

// Growth returns the rise of the line of least squares from the first to the last time, and the mean. Noise around a
// level does not rise, a leak does.
func Growth(at, values []float64) (rise, mean float64) {
	var sumAt, sum float64
	for i := range at {
		sumAt += at[i]
		sum += values[i]
	}
	n := float64(len(at))
	if n == 0 {
		return 0, 0
	}
	var with, square float64
	for i := range at {
		d := at[i] - sumAt/n
		with += d * (values[i] - sum/n)
		square += d * d
	}
	if square == 0 {
		return 0, sum / n
	}
	return with / square * (at[len(at)-1] - at[0]), sum / n
}
