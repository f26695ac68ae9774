// The load of bench/tls/run.py: keep-alive connections that ask the same again and again, over TLS
// or without. Go's TLS is the second library that this broker is tried with.
package main

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

var (
	address = flag.String("address", "", "host:port")
	ca      = flag.String("ca", "", "file of whom to trust; empty: without TLS")
	count   = flag.Int("connections", 64, "")
	seconds = flag.Float64("seconds", 2, "")
	target  = flag.String("target", "/v1/topic/t/messages", "")
	bytes   = flag.Int("bytes", 1024, "of a body; 0: GET")
	kind    = flag.String("type", "application/json", "or application/x-ndjson: lines of 1 KiB")
	accept  = flag.String("accept", "", "")
	shakes  = flag.Bool("handshakes", false, "a connection for each request")
	bare    = flag.Bool("bare", false, "with -handshakes: and no request")
	host    = flag.String("host", "localhost", "")
	status  = flag.Int("status", 200, "of each answer")
	resumed = flag.Bool("resumed", false, "with tickets")
	rate    = flag.Float64("rate", 0, "requests a second, of all connections; 0: as many as there are")
	idle    = flag.Bool("idle", false, "handshakes, then nothing until the input ends")
)

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func dial(config *tls.Config) net.Conn {
	if config == nil {
		link, err := net.Dial("tcp", *address)
		fail(err)
		return link
	}
	link, err := tls.Dial("tcp", *address, config)
	fail(err)
	return link
}

func body() string {
	if *bytes == 0 {
		return ""
	}
	if *kind == "application/json" {
		return `"` + strings.Repeat("x", *bytes-2) + `"`
	}
	return strings.Repeat(`"`+strings.Repeat("x", 1021)+"\"\n", *bytes/1024)
}

func main() {
	flag.Parse()
	var config *tls.Config
	if *ca != "" {
		text, err := os.ReadFile(*ca)
		fail(err)
		config = &tls.Config{RootCAs: x509.NewCertPool(), ServerName: "localhost"}
		config.RootCAs.AppendCertsFromPEM(text)
		if *resumed {
			config.ClientSessionCache = tls.NewLRUClientSessionCache(64)
		}
	}
	said := body()
	request := fmt.Sprintf("GET %s HTTP/1.1\r\nHost: %s\r\nAccept: %s\r\n\r\n",
		*target, *host, *accept)
	if said != "" {
		request = fmt.Sprintf("POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: %s\r\n"+
			"Content-Length: %d\r\n\r\n%s", *target, *kind, len(said), said)
	}
	if *idle {
		links := make([]net.Conn, *count)
		for i := range links {
			links[i] = dial(config)
		}
		fmt.Println("ready")
		io.ReadAll(os.Stdin)
		return
	}
	var done, received, failed atomic.Int64
	end := time.Now().Add(time.Duration(*seconds * 1e9))
	var group sync.WaitGroup
	for i := 0; i < *count; i++ {
		group.Add(1)
		go func(number int) {
			defer group.Done()
			var between time.Duration
			if *rate > 0 {
				between = time.Duration(1e9 * float64(*count) / *rate)
			}
			turn := time.Now().Add(between * time.Duration(number) / time.Duration(*count))
			link := dial(config)
			answers := bufio.NewReaderSize(link, 65536)
			for time.Now().Before(end) {
				if between > 0 {
					time.Sleep(time.Until(turn))
					turn = turn.Add(between)
				}
				if !*bare {
					_, err := io.WriteString(link, request)
					fail(err)
					answer, err := http.ReadResponse(answers, nil)
					fail(err)
					got, err := io.Copy(io.Discard, answer.Body)
					fail(err)
					if answer.StatusCode != *status {
						failed.Add(1)
					}
					received.Add(got)
				}
				done.Add(1)
				if *shakes {
					link.Close()
					link = dial(config)
					answers.Reset(link)
				}
			}
			link.Close()
		}(i)
	}
	group.Wait()
	fmt.Println(done.Load(), received.Load(), failed.Load())
}
