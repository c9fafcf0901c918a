package dataplane

// repairs is what a core keeps for the groups with repair on.
type repairs struct {
	room     int        // buffers that may be retained
	retained *retention // nil: no group with repair on was seen
}

// RetainUpTo sets how many buffers the core may retain for repair, before its first frame.
func (c *Core) RetainUpTo(chunks int) { c.repair.room = chunks }

// RepairRoom returns how many buffers the worker may yet retain. The worker's thread calls it.
func (w *Worker) RepairRoom() int {
	r := &w.core.repair
	if r.retained == nil {
		return r.room
	}
	return r.room - r.retained.chunks
}
