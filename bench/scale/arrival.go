package scale

// arrival is when all receivers of a transfer had everything, and what follows.
type arrival struct {
	arrivedAt Time
	then      func()
}

// Arrived returns when the last receiver had everything; 0: not yet.
func (a *arrival) Arrived() Time { return a.arrivedAt }

// Then makes do run as soon as the last receiver has everything.
func (a *arrival) Then(do func()) { a.then = do }

// note takes the time. What follows runs between two events, because it may begin other transfers.
func (a *arrival) note(n *Net) {
	a.arrivedAt = n.now
	if a.then != nil {
		n.At(n.now, a.then)
	}
}
