package providers

import (
	"bufio"
	"net"
	"sync"
)

// inbox buffers what arrives on a connection. While it waits for the next event of a stream it reads into a small buffer of its
// own and lends its large one to others: of many open streams, nearly all wait.
type inbox struct {
	br      *bufio.Reader // nil for none
	readers *sync.Pool    // where br is from
	nap     [napBytes]byte
	woken   woken
	busy    bool // more came at once than fits into nap
}

// napBytes is how much is read at once by an inbox that had to wait for it: more than an event of a stream has.
const napBytes = 1 << 10

// borrow takes a buffer from a pool, for what comes on a connection.
func (in *inbox) borrow(readers *sync.Pool, cn net.Conn) {
	in.readers = readers
	in.br, _ = readers.Get().(*bufio.Reader)
	in.br.Reset(cn)
}

// giveBack returns the buffer, with what is in it.
func (in *inbox) giveBack() {
	if in.br == nil {
		return
	}
	in.br.Reset(nil)
	in.readers.Put(in.br)
	in.br, in.woken = nil, woken{}
}

// fill waits until n bytes are buffered.
func (in *inbox) fill(n int, cn net.Conn) error {
	if n > 1 || in.busy || in.br.Buffered() > 0 {
		_, err := in.br.Peek(n)
		in.busy = in.br.Buffered() >= len(in.nap)
		return err
	}
	in.giveBack()
	got, err := cn.Read(in.nap[:])
	in.busy = got == len(in.nap)
	in.br, _ = in.readers.Get().(*bufio.Reader)
	in.woken = woken{in.nap[:got], cn}
	in.br.Reset(&in.woken)
	if got == 0 && err != nil {
		return err
	}
	_, err = in.br.Peek(n)
	return err
}

// woken reads what ended a nap, and then from the connection.
type woken struct {
	came []byte
	from net.Conn
}

// Read reads what came first.
func (w *woken) Read(p []byte) (int, error) {
	if len(w.came) == 0 {
		return w.from.Read(p)
	}
	n := copy(p, w.came)
	w.came = w.came[n:]
	return n, nil
}
