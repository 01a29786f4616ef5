//! Tests of requests with a credential: what the service receives (I-8).

mod odd;
mod plain;
mod world;

use std::time::Duration;

use world::{KEY, OK, Service, Worker, certificates, head};

#[tokio::test]
async fn a_request_for_the_origin_is_proved_over_tls_and_without() {
    for tls in [true, false] {
        let mut service = Service::start(tls, OK).await;
        let worker = Worker::of(&service);
        let port = service.port;
        let answer = worker
            .ask(format!(
                "GET http://LOCALHOST:{port}/items?id=7 HTTP/1.1\r\nHost: localhost:{port}\r\nAccept: x\r\n\r\n"
            ))
            .await;
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("hello"), "{answer}");
        assert!(!answer.contains(KEY), "{answer}");
        let heard = service.heard().await;
        assert!(heard.starts_with("GET /items?id=7 HTTP/1.1\r\n"), "{heard}");
        let mut lines = head(&heard);
        lines.sort();
        let expected = [
            "accept: x".to_owned(),
            "connection: close".into(),
            format!("host: localhost:{port}"),
            format!("x-api-key: {KEY}"),
        ];
        assert_eq!(lines, expected, "tls: {tls}");
    }
}

#[tokio::test]
async fn whatever_a_worker_writes_the_header_is_the_platforms() {
    let mut service = Service::start(false, OK).await;
    let port = service.port;
    for written in [
        "x-api-key: mine",
        "X-API-KEY: mine",
        "X-Api-Key: mine\r\nx-api-key: mine",
        "x_api_key: mine",
        "X-Api_Key: mine",
        "Connection: x-api-key",
        "Connection: close, X-API-Key\r\nx-api-key: mine",
        "Proxy-Connection: x-api-key",
        "Trailer: x-api-key",
        "Proxy-Authorization: mine",
        "TE: trailers\r\nConnection: te",
        "Upgrade: h2c\r\nHTTP2-Settings: mine\r\nConnection: Upgrade, HTTP2-Settings",
        "Keep-Alive: mine",
        "Expect: 100-continue",
    ] {
        let worker = Worker::of(&service);
        let answer = worker.ask(format!("GET http://localhost:{port}/ HTTP/1.1\r\n{written}\r\n\r\n")).await;
        assert!(answer.ends_with("hello"), "{written}: {answer}");
        let mut lines = head(&service.heard().await);
        lines.sort();
        let expected =
            ["connection: close".into(), format!("host: localhost:{port}"), format!("x-api-key: {KEY}")];
        assert_eq!(lines, expected, "{written}");
    }
}

#[tokio::test]
async fn what_has_no_clear_end_or_would_be_repeated_reaches_no_service() {
    let mut service = Service::start(false, OK).await;
    let port = service.port;
    for request in [
        "TRACE http://HOST/ HTTP/1.1\r\n\r\n",
        "TRACK http://HOST/ HTTP/1.1\r\n\r\n",
        "POST http://HOST/ HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST http://HOST/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
        "POST http://HOST/ HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
        "POST http://HOST/ HTTP/1.1\r\nContent-Length: 5, 5\r\n\r\nhello",
        "POST http://HOST/ HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "POST http://HOST/ HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST http://HOST/ HTTP/1.1\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        "GET http://HOST/ HTTP/1.1\r\nX: y\r\n z\r\n\r\n",
        "GET http://HOST/ HTTP/1.1\r\nX: y\nx-api-key: mine\r\n\r\n",
        "GET http://user@HOST/ HTTP/1.1\r\n\r\n",
        "GET http://HOST/a b HTTP/1.1\r\n\r\n",
        "GET http://HOST/\u{e9} HTTP/1.1\r\n\r\n",
        "GET https://HOST/ HTTP/1.1\r\n\r\n",
        "GET http://HOST/ HTTP/2.0\r\n\r\n",
        "GET http://HOST/ HTTP/1.1\r\nHost: evil.example\r\n\r\n",
    ] {
        let worker = Worker::of(&service);
        let answer = worker.ask(request.replace("HOST", &format!("localhost:{port}"))).await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{request:?}: {answer}");
        assert!(!answer.contains(KEY), "{request:?}: {answer}");
        // A connection that was opened has been closed without any data.
        while let Ok(heard) = service.heard.try_recv() {
            assert_eq!(heard, "", "{request:?}");
        }
    }
}

#[tokio::test]
async fn nothing_follows_the_one_request() {
    let mut service = Service::start(true, OK).await;
    let port = service.port;
    let second = format!("GET http://localhost:{port}/second HTTP/1.1\r\nx-api-key: mine\r\n\r\n");
    for (request, body) in [
        (format!("GET http://localhost:{port}/ HTTP/1.1\r\n\r\n"), ""),
        (format!("POST http://localhost:{port}/ HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello"), "hello"),
        (
            format!(
                "POST http://localhost:{port}/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
            ),
            "5\r\nhello\r\n0\r\n\r\n",
        ),
        (
            format!(
                "POST http://localhost:{port}/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\nTrailer: x-api-key\r\n\r\n\
                 5\r\nhello\r\n0\r\nx-api-key: mine\r\n\r\n"
            ),
            "5\r\nhello\r\n0\r\n\r\n",
        ),
    ] {
        let worker = Worker::of(&service);
        let answer = worker.ask(format!("{request}{second}")).await;
        assert_eq!(answer.matches("HTTP/1.1 200 ").count(), 1, "{request}: {answer}");
        let heard = service.heard().await;
        let (head, rest) = heard.split_once("\r\n\r\n").unwrap();
        assert_eq!(rest, body, "{request}");
        assert!(!head.contains("mine") && !head.contains("second"), "{head}");
    }
    assert!(service.heard_nothing());
}

#[tokio::test]
async fn other_places_tunnels_and_other_times_have_no_credential() {
    let mut service = Service::start(false, OK).await;
    let other = Service::start(false, OK).await;
    let port = service.port;
    let mut worker = Worker::of(&service);
    for request in [
        format!("GET http://localhost:{}/ HTTP/1.1\r\n\r\n", other.port),
        format!("GET http://localhost.evil.example:{port}/ HTTP/1.1\r\n\r\n"),
        format!("GET http://127.0.0.1:{port}/ HTTP/1.1\r\n\r\n"),
        "GET http://evil.example/ HTTP/1.1\r\n\r\n".to_owned(),
        format!("CONNECT localhost:{} HTTP/1.1\r\n\r\n", other.port),
    ] {
        let answer = worker.ask(&request).await;
        assert!(
            answer.starts_with("HTTP/1.1 403 ") && answer.contains(" not allowed"),
            "{request}: {answer}"
        );
    }
    let own = format!("GET http://localhost:{port}/ HTTP/1.1\r\n\r\n");
    assert!(worker.ask(&own).await.ends_with("hello"));
    assert!(service.heard().await.contains(KEY));
    drop(worker.active.take());
    let answer = worker.ask(&own).await;
    assert!(answer.contains("port not allowed"), "the call has ended: {answer}");
    let _next = worker.credentials.activate(&worker.lease);
    assert!(worker.ask(&own).await.ends_with("hello"));
}

#[tokio::test]
async fn a_plain_request_in_a_tunnel_to_the_origin_is_proved_and_nothing_else_in_it() {
    let mut service = Service::start(true, OK).await;
    let port = service.port;
    let within = |inner: &str| format!("CONNECT localhost:{port} HTTP/1.1\r\n\r\n{inner}");
    let own = format!("GET /p HTTP/1.1\r\nHost: localhost:{port}\r\nx-api-key: mine\r\n\r\n");
    let answer = Worker::of(&service).ask(within(&own)).await;
    assert!(
        answer.starts_with("HTTP/1.1 200 Connection Established") && answer.ends_with("hello"),
        "{answer}"
    );
    let heard = service.heard().await;
    assert!(heard.starts_with("GET /p HTTP/1.1\r\n") && heard.contains(KEY), "{heard}");
    assert!(!heard.contains("mine"), "{heard}");
    for inner in [
        "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n".to_owned(),
        "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".into(),
        "GET / HTTP/1.1\r\n\r\n".into(),
        format!("GET / HTTP/1.1\r\nHost: localhost:{port}\r\nHost: evil.example\r\n\r\n"),
        format!("GET http://evil.example/ HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n"),
        format!("CONNECT localhost:{port} HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n"),
        "SSH-2.0-OpenSSH_9.9\r\n\r\n".into(),
        "\u{16}\u{3}\u{1}\r\n\r\n".into(),
    ] {
        let answer = Worker::of(&service).ask(within(&inner)).await;
        assert!(answer.ends_with("Established\r\n\r\n"), "{inner:?}: {answer:?}");
        assert!(service.heard_nothing(), "{inner:?}");
    }
    let trace = format!("TRACE / HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n");
    let answer = Worker::of(&service).ask(within(&trace)).await;
    assert!(answer.contains("HTTP/1.1 400 ") && service.heard_nothing(), "{answer}");
}

#[tokio::test]
async fn a_host_that_the_plugin_does_not_list_gets_none() {
    let mut service = Service::start(false, OK).await;
    let worker = Worker::with(&service, &["other.example"], service.trust.clone());
    let answer = worker.ask(format!("GET http://localhost:{}/ HTTP/1.1\r\n\r\n", service.port)).await;
    assert!(answer.starts_with("HTTP/1.1 403 ") && answer.ends_with("name not allowed"), "{answer}");
    assert!(service.heard_nothing());
}

#[tokio::test]
async fn a_service_that_does_not_prove_itself_gets_none() {
    let mut service = Service::start(true, OK).await;
    let (stranger, _) = certificates();
    let worker = Worker::with(&service, &["localhost"], stranger);
    let answer = worker.ask(format!("GET http://localhost:{}/ HTTP/1.1\r\n\r\n", service.port)).await;
    assert!(answer.starts_with("HTTP/1.1 502 ") && answer.ends_with("unreachable"), "{answer}");
    assert_eq!(service.heard().await, "no TLS");
}

#[tokio::test]
async fn a_refusal_is_told_and_what_takes_the_headers_place_is_sent_from_then_on() {
    let mut service = Service::start(
        true,
        "HTTP/1.1 401 Unauthorized\r\nwww-authenticate: Key\r\ncontent-length: 0\r\n\r\n",
    )
    .await;
    let worker = Worker::of(&service);
    let request = format!("GET http://localhost:{}/ HTTP/1.1\r\n\r\n", service.port);
    let answer = worker.ask(&request).await;
    assert!(answer.starts_with("HTTP/1.1 401 ") && answer.contains("www-authenticate: Key"), "{answer}");
    tokio::time::timeout(Duration::from_secs(20), worker.lease.wait_for_refusal()).await.unwrap();
    assert!(service.heard().await.contains(KEY));
    worker.lease.renew(&service.origin(), "authorization", "Bearer newer").unwrap();
    worker.ask(&request).await;
    let heard = service.heard().await;
    assert!(heard.contains("authorization: Bearer newer\r\n") && !heard.contains(KEY), "{heard}");
}

#[tokio::test]
async fn answers_come_back_as_they_are_but_for_what_belongs_to_the_connection() {
    for (method, answer, expected) in [
        (
            "GET",
            "HTTP/1.1 302 Found\r\nlocation: https://evil.example/\r\ncontent-length: 0\r\n\r\n",
            "location: https://evil.example/",
        ),
        (
            "GET",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
            "\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        ),
        ("HEAD", "HTTP/1.1 200 OK\r\ncontent-length: 70000\r\n\r\n", "content-length: 70000"),
        (
            "GET",
            "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nx: y\r\nset-cookie: a\r\nset-cookie: b\r\n\r\nab",
            "set-cookie: b",
        ),
        ("GET", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n", "HTTP/1.1 204 "),
        (
            "GET",
            "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n",
            "HTTP/1.1 502 ",
        ),
        ("GET", "SSH-2.0-OpenSSH_9.9\r\n\r\n", "HTTP/1.1 502 "),
        (
            "GET",
            "HTTP/1.1 200 OK\r\nconnection: x\r\nx: y\r\nkeep-alive: z\r\nproxy-authenticate: q\r\ncontent-length: 0\r\n\r\n",
            "content-length: 0",
        ),
    ] {
        let mut service = Service::start(false, answer).await;
        let worker = Worker::of(&service);
        let request = format!("{method} http://localhost:{}/ HTTP/1.1\r\n\r\n", service.port);
        let got = worker.ask(request).await;
        assert!(got.contains(expected), "{answer:?}: {got:?}");
        for own in ["keep-alive", "proxy-authenticate", "upgrade", "connection: x"] {
            assert!(!got.contains(own), "{answer:?}: {got:?}");
        }
        service.heard().await;
        assert!(service.heard_nothing(), "it is asked once, and nobody else is");
    }
}

#[tokio::test]
async fn a_large_body_passes_either_way_of_framing() {
    let mut service = Service::start(true, OK).await;
    let body = "x".repeat(1 << 20);
    let port = service.port;
    for (framing, sent) in [
        (format!("Content-Length: {}", body.len()), body.clone()),
        ("Transfer-Encoding: chunked".to_owned(), format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len())),
    ] {
        let worker = Worker::of(&service);
        let answer =
            worker.ask(format!("PUT http://localhost:{port}/ HTTP/1.1\r\n{framing}\r\n\r\n{sent}")).await;
        assert!(answer.ends_with("hello"), "{answer}");
        let heard = service.heard().await;
        assert_eq!(heard.matches('x').count(), body.len() + 1, "the body, and the name of the header");
    }
}
