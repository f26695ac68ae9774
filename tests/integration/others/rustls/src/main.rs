//! A client by a third library: rustls. Run by test_tls_others.py:
//!
//!     tls ADDRESS CA-FILE CHECK
//!
//! It ends with 0 if the broker does what the check says, else with a word on standard error.

use rustls::client::Resumption;
use rustls::pki_types::{pem::PemObject, CertificateDer, ServerName};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ClientConnection, HandshakeKind, ProtocolVersion, RootCertStore};
use rustls::{StreamOwned, SupportedProtocolVersion};
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);
const HEAD: &str = "GET /ready HTTP/1.1\r\nHost: localhost\r\n";
const RECORD_BYTES: usize = 16384;

type Link = StreamOwned<ClientConnection, TcpStream>;

struct Broker {
    address: String,
    trusted: RootCertStore,
}

fn wrong<T>(said: String) -> Result<T> {
    Err(Error::new(ErrorKind::Other, said))
}

impl Broker {
    fn config(&self, version: &'static SupportedProtocolVersion) -> ClientConfig {
        let mut config = ClientConfig::builder_with_protocol_versions(&[version])
            .with_root_certificates(self.trusted.clone())
            .with_no_client_auth();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        config.resumption = Resumption::in_memory_sessions(8);
        config
    }

    fn reach(&self, config: &Arc<ClientConfig>) -> Result<Link> {
        let name = ServerName::try_from("localhost").unwrap();
        let mut session = ClientConnection::new(config.clone(), name).map_err(Error::other)?;
        let mut socket = TcpStream::connect(&self.address)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.set_write_timeout(Some(PATIENCE))?;
        while session.is_handshaking() {
            session.complete_io(&mut socket)?;
        }
        Ok(StreamOwned::new(session, socket))
    }
}

/// One answer, whose body has a length; it has to be a good one.
fn answered(link: &mut Link) -> Result<()> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        link.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).to_lowercase();
    let length = head.split("content-length: ").nth(1).and_then(|text| text.lines().next());
    let length: usize = length.and_then(|text| text.parse().ok()).unwrap_or(0);
    link.read_exact(&mut vec![0; length])?;
    if head.starts_with("http/1.1 200 ") { Ok(()) } else { wrong(head) }
}

fn ask(link: &mut Link) -> Result<()> {
    link.write_all(format!("{HEAD}\r\n").as_bytes())?;
    answered(link)
}

/// Both versions, what is agreed on, and a ticket that is taken again.
fn resumption(broker: &Broker) -> Result<()> {
    for (version, known) in [(&TLS12, ProtocolVersion::TLSv1_2), (&TLS13, ProtocolVersion::TLSv1_3)] {
        let config = Arc::new(broker.config(version));
        for turn in 0..4 {
            let mut link = broker.reach(&config)?;
            ask(&mut link)?;
            let kind = link.conn.handshake_kind();
            if (kind == Some(HandshakeKind::Resumed)) != (turn > 0) {
                return wrong(format!("{known:?}, turn {turn}: {kind:?}"));
            }
            if link.conn.protocol_version() != Some(known) {
                return wrong(format!("{:?}", link.conn.protocol_version()));
            }
            if link.conn.alpn_protocol() != Some(b"http/1.1".as_slice()) {
                return wrong(format!("{:?}", link.conn.alpn_protocol()));
            }
        }
    }
    Ok(())
}

/// Requests in records of each size up to 300 bytes, and of some up to the largest.
fn records(broker: &Broker) -> Result<()> {
    for version in [&TLS12, &TLS13] {
        for most in (33..300).chain((300..RECORD_BYTES).step_by(1733)).chain([RECORD_BYTES]) {
            let mut config = broker.config(version);
            config.max_fragment_size = Some(most + 5); // With the head of a record.
            let mut link = broker.reach(&Arc::new(config))?;
            let pad = "x".repeat(most.min(12_000));
            link.write_all(format!("{HEAD}X-Pad: {pad}\r\n\r\n").as_bytes())?;
            answered(&mut link)?;
        }
    }
    Ok(())
}

/// Other keys, again and again, each with a wish for others of the broker's.
fn keys(broker: &Broker) -> Result<()> {
    let mut link = broker.reach(&Arc::new(broker.config(&TLS13)))?;
    for turn in 0..200 {
        let said = format!("{HEAD}\r\n");
        let (first, rest) = said.split_at(turn % said.len());
        link.write_all(first.as_bytes())?; // Within a request, too.
        link.conn.refresh_traffic_keys().map_err(Error::other)?;
        link.write_all(rest.as_bytes())?;
        answered(&mut link)?;
    }
    Ok(())
}

/// Who has said that nothing follows reads its answers, and then an end that is said.
fn half_close(broker: &Broker) -> Result<()> {
    for version in [&TLS12, &TLS13] {
        let mut link = broker.reach(&Arc::new(broker.config(version)))?;
        for _ in 0..20 {
            link.write_all(format!("{HEAD}\r\n").as_bytes())?;
        }
        link.conn.send_close_notify();
        link.flush()?;
        link.sock.shutdown(Shutdown::Write)?;
        for _ in 0..20 {
            answered(&mut link)?;
        }
        // An end without close_notify is an error here, of kind UnexpectedEof.
        if link.read(&mut [0])? != 0 {
            return wrong("more than the answers".to_string());
        }
    }
    Ok(())
}

fn main() {
    let given: Vec<String> = std::env::args().collect();
    let mut trusted = RootCertStore::empty();
    trusted.add(CertificateDer::from_pem_file(&given[2]).expect("a certificate")).expect("taken");
    let broker = Broker { address: given[1].clone(), trusted };
    let done = match given[3].as_str() {
        "resumption" => resumption(&broker),
        "records" => records(&broker),
        "keys" => keys(&broker),
        "half-close" => half_close(&broker),
        other => wrong(format!("no such check: {other}")),
    };
    if let Err(error) = done {
        eprintln!("{}: {error}", given[3]);
        std::process::exit(1);
    }
}
