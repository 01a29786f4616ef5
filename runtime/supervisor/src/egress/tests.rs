//! Tests of the proxy over a real socket.

use std::sync::Arc;

use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::*;

fn proxy_of(rules: EgressRules) -> Proxy {
    Proxy::new(rules, "p@1".into(), "w".into(), &ProxyContext::default())
}

async fn ask(rules: &[&str], request: &str) -> String {
    ask_by(EgressRules::new(&rules.iter().map(|rule| (*rule).to_owned()).collect::<Vec<_>>()), request).await
}

async fn ask_by(rules: EgressRules, request: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("egress.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let proxy = tokio::spawn(serve(listener, Arc::new(proxy_of(rules)), None));
    let mut stream = UnixStream::connect(&path).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    proxy.abort();
    answer
}

#[tokio::test]
async fn a_name_that_is_not_listed_is_refused() {
    let answer = ask(&["api.example.com"], "CONNECT evil.example.com:443 HTTP/1.1\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 403 ") && answer.ends_with("name not allowed"), "{answer}");
}

#[tokio::test]
async fn a_listed_name_that_leads_inside_is_refused() {
    for (name, request) in [
        ("localhost", "CONNECT localhost:443 HTTP/1.1\r\n\r\n"),
        ("127.0.0.1", "GET http://127.0.0.1/ HTTP/1.1\r\n\r\n"),
        ("169.254.169.254", "GET http://169.254.169.254/latest HTTP/1.1\r\n\r\n"),
    ] {
        let answer = ask(&[name], request).await;
        assert!(answer.starts_with("HTTP/1.1 403 ") && answer.ends_with("address not allowed"), "{answer}");
    }
}

#[tokio::test]
async fn a_private_address_is_reached_where_the_operator_lists_its_network() {
    // 127.0.0.1 and, if the machine has it, ::1: nothing listens at their port, which the proxy has to find out.
    let routes = |listed: &[&str]| -> Vec<PrivateRoute> {
        listed.iter().map(|text| PrivateRoute::parse(text, vec!["*".into()]).unwrap()).collect()
    };
    let listed = routes(&["localhost=127.0.0.0/8", "localhost=::1"]);
    let rules = |routes: &[PrivateRoute]| EgressRules::new(&["localhost".to_owned()]).with_private(routes);
    let request = "CONNECT localhost:443 HTTP/1.1\r\n\r\n";
    let answer = ask_by(rules(&listed), request).await;
    assert!(!answer.ends_with("address not allowed"), "{answer}");
    for other in [&["localhost=10.0.0.0/8"][..], &["other.test=127.0.0.0/8", "other.test=::1"]] {
        let answer = ask_by(rules(&routes(other)), request).await;
        assert!(answer.ends_with("address not allowed"), "{answer}");
    }
}

/// Starts an HTTP service that answers `found` to everything, once.
async fn service() -> u16 {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = [0_u8; 1024];
        let length = stream.read(&mut head).await.unwrap();
        let host = format!("host: 127.0.0.1:{port}\r\n");
        let right = String::from_utf8_lossy(&head[..length]).to_lowercase().contains(&host);
        let body = if right { "found" } else { "wrong host" };
        let length = body.len();
        let answer =
            format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}");
        stream.write_all(answer.as_bytes()).await.unwrap();
    });
    port
}

#[tokio::test]
async fn in_development_a_listed_name_is_reached_on_any_port_in_both_forms_of_a_proxy_request() {
    let rules = || EgressRules::new(&["127.0.0.1".to_owned()]).for_development();
    for tunnelled in [false, true] {
        let port = service().await;
        let request = match tunnelled {
            false => format!("GET http://127.0.0.1:{port}/x HTTP/1.1\r\n\r\n"),
            true => format!(
                "CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\nGET /x HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n"
            ),
        };
        let answer = ask_by(rules(), &request).await;
        assert!(answer.ends_with("found"), "{tunnelled}: {answer}");
    }
    let other = ask_by(rules(), "GET http://localhost:8000/ HTTP/1.1\r\n\r\n").await;
    assert!(other.ends_with("name not allowed"), "{other}");
    let metadata = EgressRules::new(&["169.254.169.254".to_owned()]).for_development();
    let refused = ask_by(metadata, "GET http://169.254.169.254/ HTTP/1.1\r\n\r\n").await;
    assert!(refused.ends_with("address not allowed"), "{refused}");
}

#[tokio::test]
async fn a_port_that_is_not_allowed_is_the_reason_for_a_listed_name() {
    for request in ["GET http://a.example:8080/ HTTP/1.1\r\n\r\n", "CONNECT a.example:5432 HTTP/1.1\r\n\r\n"]
    {
        let answer = ask(&["a.example"], request).await;
        assert!(answer.starts_with("HTTP/1.1 403 ") && answer.contains("port not allowed"), "{answer}");
        let unlisted = ask(&["b.example"], request).await;
        assert!(unlisted.ends_with("name not allowed"), "{unlisted}");
    }
}

#[tokio::test]
async fn a_destination_is_reached_only_at_an_address_that_its_name_may_have() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            listener.accept().await.unwrap().0.write_all(b"database").await.unwrap();
        }
    });
    let route = |text: &str| [PrivateRoute::parse(text, vec!["*".into()]).unwrap()];
    // The name resolves to 127.0.0.1, and to ::1 where the machine says so.
    let own = ["localhost=127.0.0.0/8", "localhost=::1"].map(|text| route(text)[0].clone());
    for (rules, expected) in [
        (EgressRules::new(&[]).with_private(&own), "database"),
        (EgressRules::new(&[]).for_development(), "database"),
        (EgressRules::new(&[]), ""),
        (EgressRules::new(&[]).with_private(&route("other.test=127.0.0.0/8")), ""),
        (EgressRules::new(&["localhost".to_owned()]), ""),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t0");
        let socket = UnixListener::bind(&path).unwrap();
        let to = Destination::parse(&format!("localhost:{port}"));
        let proxy = tokio::spawn(serve(socket, Arc::new(proxy_of(rules.clone())), to));
        let mut found = String::new();
        UnixStream::connect(&path).await.unwrap().read_to_string(&mut found).await.unwrap();
        proxy.abort();
        assert_eq!(found, expected, "{rules:?}");
    }
}

#[tokio::test]
async fn what_is_no_proxy_request_is_malformed() {
    assert!(ask(&["a.example"], "GET / HTTP/1.1\r\n\r\n").await.starts_with("HTTP/1.1 400 "));
}

/// Returns the first bytes of a TLS client that asks for `name`.
async fn client_hello(name: &str) -> Vec<u8> {
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    let connector = TlsConnector::from(Arc::new(config));
    let (client, mut server) = tokio::io::duplex(64 << 10);
    let name = name.to_owned().try_into().unwrap();
    let connecting = tokio::spawn(async move { connector.connect(name, client).await.map(drop) });
    let mut hello = vec![0; 64 << 10];
    let length = server.read(&mut hello).await.unwrap();
    hello.truncate(length);
    connecting.abort();
    hello
}

/// Returns the result of `tunnelled` for a TLS client for `host` that sends these pieces.
async fn behind_connect(host: &str, pieces: Vec<Vec<u8>>) -> Result<Vec<u8>, Denial> {
    match behind_connect_to((host, 443), pieces).await? {
        TunnelContent::Tls(hello) => Ok(hello),
        TunnelContent::Request(head, _) => panic!("{head:?}"),
    }
}

async fn behind_connect_to((host, port): (&str, u16), pieces: Vec<Vec<u8>>) -> Result<TunnelContent, Denial> {
    let (mut client, mut proxy) = UnixStream::pair().unwrap();
    let client = tokio::spawn(async move {
        let mut established = [0; 39];
        client.read_exact(&mut established).await.unwrap();
        for piece in pieces {
            // Err: it was refused before the last piece.
            let _ = client.write_all(&piece).await;
            tokio::task::yield_now().await;
        }
    });
    let to = Head::parse(format!("CONNECT {host}:{port} HTTP/1.1\r\n\r\n").as_bytes()).unwrap();
    let found = tunnelled(&mut proxy, &to, Vec::new(), false).await;
    // Stops a client that is still sending.
    drop(proxy);
    client.await.unwrap();
    found
}

#[tokio::test]
async fn a_tunnel_carries_tls_for_the_name_that_was_judged() {
    let hello = client_hello("api.example.com").await;
    for host in ["api.example.com", "API.example.com."] {
        assert_eq!(behind_connect(host, vec![hello.clone()]).await, Ok(hello.clone()));
    }
    assert_eq!(behind_connect("127.0.0.1", vec![client_hello("127.0.0.1").await]).await.map(drop), Ok(()));
}

#[tokio::test]
async fn a_tunnel_for_another_name_or_none_or_without_tls_is_closed() {
    for (host, first) in [
        ("api.example.com", client_hello("evil.example.com").await),
        ("api.example.com", client_hello("127.0.0.1").await),
        ("127.0.0.1", client_hello("api.example.com").await),
        ("api.example.com", b"GET / HTTP/1.1\r\nHost: evil.example.com\r\n\r\n".to_vec()),
        ("api.example.com", b"SSH-2.0-OpenSSH_9.9\r\n".to_vec()),
        ("api.example.com", Vec::new()),
    ] {
        assert_eq!(behind_connect(host, vec![first]).await, Err(Denial::ServerName), "{host}");
    }
}

#[tokio::test]
async fn a_client_hello_may_come_in_pieces_and_in_records_and_not_without_end() {
    let hello = client_hello("api.example.com").await;
    let bytes: Vec<Vec<u8>> = hello.iter().map(|byte| vec![*byte]).collect();
    assert_eq!(behind_connect("api.example.com", bytes).await, Ok(hello.clone()));
    // Splits the handshake's record into many (RFC 8446 section 5.1).
    let record = |part: &[u8]| {
        let length = u16::try_from(part.len()).unwrap().to_be_bytes();
        [&[22, 3, 1], length.as_slice(), part].concat()
    };
    let records: Vec<u8> = hello[5..].chunks(7).flat_map(record).collect();
    assert_eq!(behind_connect("api.example.com", vec![records.clone()]).await, Ok(records));
    // A handshake message that announces more than the maximum size.
    let endless = std::iter::once(record(&[1, 255, 255, 255])).chain((0..100).map(|_| record(&[0; 4096])));
    assert_eq!(behind_connect("api.example.com", endless.collect()).await, Err(Denial::ServerName));
}

#[tokio::test]
async fn a_tunnel_to_the_port_of_plain_http_carries_a_request_for_the_host_that_was_judged_and_nothing_else()
{
    let asked = |host: &str| format!("GET /p HTTP/1.1\r\nHost: {host}\r\n\r\n").into_bytes();
    let target = ("api.example.com", 80);
    let Ok(TunnelContent::Request(head, read)) =
        behind_connect_to(target, vec![asked("api.example.com")]).await
    else {
        panic!("it is no request")
    };
    assert_eq!((head.authority.as_str(), head.path.as_str()), ("api.example.com", "/p"));
    assert_eq!(read, asked("api.example.com"));
    for first in [
        asked("evil.example.com"),
        client_hello("api.example.com").await,
        b"SSH-2.0-OpenSSH_9.9\r\n\r\n".to_vec(),
        Vec::new(),
    ] {
        assert_eq!(behind_connect_to(target, vec![first]).await, Err(Denial::ServerName));
    }
}

/// Returns the answer of `proxy` to one client.
async fn carried(proxy: &Proxy, request: &str) -> String {
    let (mut client, stream) = UnixStream::pair().unwrap();
    client.write_all(request.as_bytes()).await.unwrap();
    proxy.carry(stream).await;
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_for_its_turn_before_it_is_judged_and_audited() {
    let proxy = proxy_of(EgressRules::new(&[]));
    // Uses up two hundred seconds of the rate limit.
    for _ in 0..10_000 {
        let _ = futures::poll!(std::pin::pin!(proxy.rate_limit.acquire()));
    }
    let began = tokio::time::Instant::now();
    let answer = carried(&proxy, "CONNECT evil.example.com:443 HTTP/1.1\r\n\r\n").await;
    assert!(answer.ends_with("name not allowed"), "{answer}");
    assert!(began.elapsed() >= Duration::from_secs(190), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_worker_whose_lookups_are_all_stuck_begins_no_other() {
    let proxy = proxy_of(EgressRules::new(&["localhost".to_owned()]));
    let inside = "CONNECT localhost:443 HTTP/1.1\r\n\r\n";
    assert!(carried(&proxy, inside).await.ends_with("address not allowed"), "the name is looked up");
    for _ in 0..16 {
        // Dropped at once; lookups that have begun continue.
        let _ = futures::poll!(std::pin::pin!(proxy.names.look_up(std::future::pending::<()>())));
    }
    let answer = carried(&proxy, inside).await;
    assert!(answer.starts_with("HTTP/1.1 502 ") && answer.ends_with("unreachable"), "{answer}");
}
