// A client by another library than OpenSSL: Go's crypto/tls. Run by test_tls_others.py:
//
//	tls ADDRESS CA-FILE CHECK
//
// It ends with 0 if the broker does what the check says, else with a word on standard error.
package main

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	recordMax = 16384
	patience  = 60 * time.Second
	ready     = "GET /ready HTTP/1.1\r\nHost: localhost\r\n\r\n"
	last      = "GET /ready HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
)

var (
	address string
	trusted *x509.CertPool
)

func config() *tls.Config {
	return &tls.Config{
		RootCAs: trusted, ServerName: "localhost", MinVersion: tls.VersionTLS10,
		DynamicRecordSizingDisabled: true, NextProtos: []string{"http/1.1"},
	}
}

func must(err error, what string) {
	if err != nil {
		fail("%s: %v", what, err)
	}
}

func fail(format string, values ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", values...)
	os.Exit(1)
}

func reach() net.Conn {
	raw, err := net.DialTimeout("tcp", address, patience)
	must(err, "connect")
	must(raw.SetDeadline(time.Now().Add(patience)), "deadline")
	return raw
}

func dial(with *tls.Config) (*tls.Conn, error) {
	link := tls.Client(reach(), with)
	if err := link.Handshake(); err != nil {
		link.Close()
		return nil, err
	}
	return link, nil
}

func shaken(with *tls.Config) *tls.Conn {
	link, err := dial(with)
	must(err, "handshake")
	return link
}

func answered(reader *bufio.Reader, what string) {
	answer, err := http.ReadResponse(reader, nil)
	must(err, what)
	_, err = io.Copy(io.Discard, answer.Body)
	must(err, what)
	if answer.StatusCode != 200 {
		fail("%s: %s", what, answer.Status)
	}
}

func ask(link *tls.Conn, what string) {
	_, err := link.Write([]byte(ready))
	must(err, what)
	answered(bufio.NewReader(link), what)
}

func versions() {
	for version := uint16(tls.VersionTLS10); version <= tls.VersionTLS13; version++ {
		with := config()
		with.MinVersion, with.MaxVersion = version, version
		link, err := dial(with)
		if good := version >= tls.VersionTLS12; good != (err == nil) {
			fail("%s: %v", tls.VersionName(version), err)
		}
		if link != nil {
			ask(link, tls.VersionName(version))
			link.Close()
		}
	}
}

// Of all that Go knows for 1.2, one after the other.
func ciphers() {
	tried := 0
	for _, suite := range append(tls.CipherSuites(), tls.InsecureCipherSuites()...) {
		if !slices.Contains(suite.SupportedVersions, tls.VersionTLS12) {
			continue
		}
		with := config()
		with.MaxVersion, with.CipherSuites = tls.VersionTLS12, []uint16{suite.ID}
		link, err := dial(with)
		// The certificate of the test is ECDSA's.
		good := strings.HasPrefix(suite.Name, "TLS_ECDHE_ECDSA_") &&
			(strings.Contains(suite.Name, "_GCM_") || strings.Contains(suite.Name, "CHACHA20"))
		if good != (err == nil) {
			fail("%s: %v", suite.Name, err)
		}
		if link != nil {
			link.Close()
		}
		tried++
	}
	if tried < 15 {
		fail("only %d were tried", tried)
	}
}

// Those that are taken, alone; those that are not; and one that is, behind one that is not: then
// 1.3 asks for the handshake once more. In 1.2 the certificate's own (P-256) has to be among them.
func groups() {
	for _, each := range []struct {
		version uint16
		offered []tls.CurveID
		taken   bool
	}{
		{tls.VersionTLS13, []tls.CurveID{tls.X25519}, true},
		{tls.VersionTLS13, []tls.CurveID{tls.CurveP256}, true},
		{tls.VersionTLS13, []tls.CurveID{tls.CurveP384}, true},
		{tls.VersionTLS13, []tls.CurveID{tls.CurveP521}, false},
		{tls.VersionTLS13, []tls.CurveID{tls.CurveP521, tls.CurveP384}, true},
		{tls.VersionTLS12, []tls.CurveID{tls.CurveP256}, true},
		{tls.VersionTLS12, []tls.CurveID{tls.X25519, tls.CurveP256}, true},
		{tls.VersionTLS12, []tls.CurveID{tls.CurveP521}, false},
	} {
		with := config()
		with.MinVersion, with.MaxVersion = each.version, each.version
		with.CurvePreferences = each.offered
		link, err := dial(with)
		if each.taken != (err == nil) {
			fail("%v, %s: %v", each.offered, tls.VersionName(each.version), err)
		}
		if link != nil {
			ask(link, "after it")
			link.Close()
		}
	}
}

func protocols() {
	for _, each := range []struct {
		offered []string
		chosen  string
		taken   bool
	}{
		{nil, "", true},
		{[]string{"http/1.1"}, "http/1.1", true},
		{[]string{"h2", "http/1.1"}, "http/1.1", true},
		{[]string{"h2"}, "", false},
		{[]string{"barco"}, "", false},
	} {
		with := config()
		with.NextProtos = each.offered
		link, err := dial(with)
		if each.taken != (err == nil) {
			fail("%v: %v", each.offered, err)
		}
		if link != nil {
			if found := link.ConnectionState().NegotiatedProtocol; found != each.chosen {
				fail("%v: %q", each.offered, found)
			}
			link.Close()
		}
	}
}

func resumption() {
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		with := config()
		with.MinVersion, with.MaxVersion = version, version
		with.ClientSessionCache = tls.NewLRUClientSessionCache(4)
		for turn := range 4 {
			link := shaken(with)
			ask(link, "resumed or not") // A ticket of 1.3 comes behind the handshake.
			if again := link.ConnectionState().DidResume; again != (turn > 0) {
				fail("%s, turn %d: resumed is %v", tls.VersionName(version), turn, again)
			}
			link.Close()
		}
	}
}

// Requests that are one record each, of each size that can be; smaller ones in records of that size.
// 1.2 has other records, and is asked with some of the sizes.
func records() {
	const head, end = "GET /ready HTTP/1.1\r\nHost: localhost\r\nX-Pad: ", "\r\n\r\n"
	for version, step := range map[uint16]int{tls.VersionTLS12: 61, tls.VersionTLS13: 1} {
		with := config()
		with.MinVersion, with.MaxVersion = version, version
		link := shaken(with)
		reader := bufio.NewReader(link)
		for size := 1; size <= recordMax; size += step {
			pad := max(size-len(head)-len(end), 0)
			said := []byte(head + strings.Repeat("x", pad) + end)
			for at := 0; at < len(said); at += size {
				_, err := link.Write(said[at:min(at+size, len(said))])
				must(err, fmt.Sprint("a record of ", size))
			}
			must(link.SetDeadline(time.Now().Add(patience)), "deadline")
			answered(reader, fmt.Sprint("records of ", size))
		}
		link.Close()
	}
}

// What comes by a connection, kept.
type listened struct {
	net.Conn
	came []byte
}

func (each *listened) Read(into []byte) (int, error) {
	got, err := each.Conn.Read(into)
	each.came = append(each.came, into[:got]...)
	return got, err
}

func listening(with *tls.Config) (*tls.Conn, *listened) {
	raw := &listened{Conn: reach()}
	link := tls.Client(raw, with)
	must(link.Handshake(), "handshake")
	return link, raw
}

// The last record is an alert, which close_notify is. Go takes the end of the socket for one, where
// no record is cut; so it is looked at on the wire. In 1.3 an alert is known by its size.
func properEnd(reader io.Reader, raw *listened, version uint16, what string) {
	if left, err := io.ReadAll(reader); err != nil || len(left) > 0 {
		fail("%s: %v behind %q", what, err, left)
	}
	kind, size := byte(0), 0
	for at := 0; at+5 <= len(raw.came); at += 5 + size {
		kind, size = raw.came[at], int(raw.came[at+3])<<8+int(raw.came[at+4])
	}
	if kind != 21 && !(version == tls.VersionTLS13 && kind == 23 && size == 2+1+16) {
		fail("%s: the last record is of kind %d and %d bytes", what, kind, size)
	}
}

// Who has said that nothing follows reads the answers to what came before, and then a proper end.
func halfClose() {
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		with := config()
		with.MinVersion, with.MaxVersion = version, version
		link, raw := listening(with)
		_, err := link.Write([]byte(strings.Repeat(ready, 20)))
		must(err, "requests")
		must(link.CloseWrite(), "the end")
		reader := bufio.NewReader(link)
		for range 20 {
			answered(reader, "behind the end")
		}
		properEnd(reader, raw, version, "after a half-close")
		link.Close()
	}
}

func closing() {
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		with := config()
		with.MinVersion, with.MaxVersion = version, version
		link, raw := listening(with)
		_, err := link.Write([]byte(last))
		must(err, "a last request")
		reader := bufio.NewReader(link)
		answered(reader, "a last request")
		must(link.CloseWrite(), "the end")
		properEnd(reader, raw, version, "after a last answer")
		link.Close()
		link, raw = listening(with)
		_, err = link.Write([]byte("no request at all\r\n\r\n"))
		must(err, "what is no request")
		reader = bufio.NewReader(link)
		answer, err := http.ReadResponse(reader, nil)
		must(err, "a refusal")
		_, err = io.Copy(io.Discard, answer.Body)
		must(err, "a refusal")
		if answer.StatusCode != 400 {
			fail("a refusal: %s", answer.Status)
		}
		must(link.CloseWrite(), "the end")
		properEnd(reader, raw, version, "after a refusal")
		link.Close()
	}
}

// Ends without a word, at each place of a request; the broker goes on for everybody else.
func truncation() {
	honest := shaken(config())
	const said = "POST /v1/topic/cut/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nnot whole"
	for cut := range len(said) { // One byte less than all of it, at most.
		raw := reach()
		link := tls.Client(raw, config())
		must(link.Handshake(), "handshake")
		if cut > 0 {
			_, err := link.Write([]byte(said[:cut]))
			must(err, "a part")
		}
		must(raw.(*net.TCPConn).CloseWrite(), "cut")
		if got, _ := io.ReadAll(link); strings.Contains(string(got), " 200 ") {
			fail("cut at %d, and answered: %q", cut, got)
		}
		raw.Close()
	}
	ask(honest, "beside them")
	honest.Close()
}

// Many who shake hands, and many who begin to and say no more: who is in is answered, and who comes
// afterwards is let in.
func flood() {
	honest := shaken(config())
	silent := make([]net.Conn, 300)
	for i := range silent {
		silent[i] = reach()
		_, err := silent[i].Write([]byte{22, 3, 1, 2, 0, 1, 0})
		must(err, "a beginning")
	}
	var all sync.WaitGroup
	var failed error
	var lock sync.Mutex
	for range 16 {
		all.Add(1)
		go func() {
			defer all.Done()
			for range 50 {
				link, err := dial(config())
				if err != nil {
					lock.Lock()
					failed = err
					lock.Unlock()
					return
				}
				link.Close()
			}
		}()
	}
	for range 200 {
		ask(honest, "beside a flood")
	}
	all.Wait()
	must(failed, "a handshake of a flood")
	ask(honest, "after it")
	for _, each := range silent {
		each.Close()
	}
	link := shaken(config())
	ask(link, "a newcomer")
	link.Close()
}

func main() {
	checks := map[string]func(){
		"versions": versions, "ciphers": ciphers, "groups": groups, "protocols": protocols,
		"resumption": resumption, "records": records, "half-close": halfClose,
		"closing": closing, "truncation": truncation, "flood": flood,
	}
	if len(os.Args) != 4 || checks[os.Args[3]] == nil {
		fail("usage: tls ADDRESS CA-FILE CHECK")
	}
	address = os.Args[1]
	text, err := os.ReadFile(os.Args[2])
	must(err, "the authority")
	trusted = x509.NewCertPool()
	if !trusted.AppendCertsFromPEM(text) {
		fail("no certificate in %s", os.Args[2])
	}
	checks[os.Args[3]]()
}
