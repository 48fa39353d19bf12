package memory

import (
	"sync"
	"time"
)

// delayedWrites writes the inputs of turns whose answers take longer than store.open_delay. One timer serves all turns: most are
// answered before, and a timer for each would wake an idle processor for each. It ticks while turns wait, each for the delay or
// up to one tick less.
type delayedWrites struct {
	tick time.Duration
	work *sync.WaitGroup // runs the writes

	mu    sync.Mutex
	slots [delayTicks][]*turnWriter // nil for a turn that has ended
	due   int                       // the slot of the next tick
	timer *time.Timer               // nil while no turn waits
}

// delayTicks is how many ticks a turn waits.
const delayTicks = 4

// delayedPlace is where a turn stands in the slots.
type delayedPlace struct {
	slot  int // from 1; 0 is none
	index int
}

func (d *delayedWrites) add(w *turnWriter) {
	d.mu.Lock()
	defer d.mu.Unlock()
	last := (d.due + delayTicks - 1) % delayTicks
	w.delayed = delayedPlace{last + 1, len(d.slots[last])}
	d.slots[last] = append(d.slots[last], w)
	if d.timer == nil {
		d.timer = time.AfterFunc(d.tick, d.elapsed) //nolint:forbidigo // wakes; no clock is read
	}
}

// remove forgets a turn that has ended.
func (d *delayedWrites) remove(w *turnWriter) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if at := w.delayed; at.slot > 0 {
		d.slots[at.slot-1][at.index] = nil
		w.delayed = delayedPlace{}
	}
}

// elapsed writes the inputs that are due, and sets the timer if others wait.
func (d *delayedWrites) elapsed() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, w := range d.slots[d.due] {
		if w != nil {
			w.delayed = delayedPlace{}
			d.work.Go(w.writeInput)
		}
	}
	clear(d.slots[d.due])
	d.slots[d.due] = d.slots[d.due][:0]
	d.due = (d.due + 1) % delayTicks

	d.timer = nil
	for _, slot := range d.slots {
		if len(slot) > 0 {
			d.timer = time.AfterFunc(d.tick, d.elapsed) //nolint:forbidigo // wakes; no clock is read
			return
		}
	}
}
