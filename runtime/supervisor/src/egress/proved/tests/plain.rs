//! Tests of plain requests without a credential: each is checked, wherever it is on its connection.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::world::{KEY, OK, Service, Worker, head};

#[tokio::test]
async fn a_request_is_sent_as_it_was_judged() {
    let mut service = Service::start(false, OK).await;
    let worker = Worker::plain(&service);
    let port = service.port;
    let request = format!(
        "POST http://localhost:{port}/a?b=c HTTP/1.1\r\nhost: localhost:{port}\r\nAccept: x\r\nTE: trailers\r\n\
         Proxy-Authorization: y\r\nContent-Length: 5\r\n\r\nhello"
    );
    let answer = worker.ask(request).await;
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("hello"), "{answer}");
    let heard = service.heard().await;
    assert!(heard.starts_with("POST /a?b=c HTTP/1.1\r\n") && heard.ends_with("\r\n\r\nhello"), "{heard}");
    let mut lines = head(&heard);
    lines.sort();
    let expected =
        ["accept: x", "connection: close", "content-length: 5", &format!("host: localhost:{port}")];
    assert_eq!(lines, expected);
}

/// The service keeps reading after its answer, as one that ignores `Connection: close` does.
#[tokio::test]
async fn what_follows_a_request_on_its_connection_reaches_nobody() {
    let mut service = Service::start(false, OK).await;
    let port = service.port;
    let first = [
        format!("GET http://localhost:{port}/ HTTP/1.1\r\n\r\n"),
        format!("POST http://localhost:{port}/ HTTP/1.1\r\nContent-Length: 2\r\n\r\nab"),
        format!(
            "POST http://localhost:{port}/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n"
        ),
        format!("CONNECT localhost:{port} HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n"),
    ];
    let second = [
        "GET /second HTTP/1.1\r\nHost: evil.example\r\n\r\n".to_owned(),
        "GET http://evil.example/second HTTP/1.1\r\n\r\n".to_owned(),
        format!("GET http://localhost:{port}/second HTTP/1.1\r\n\r\n"),
        "CONNECT evil.example:443 HTTP/1.1\r\n\r\nsecond".to_owned(),
    ];
    for first in &first {
        for second in &second {
            let answer = Worker::plain(&service).ask(format!("{first}{second}")).await;
            assert_eq!(answer.matches("\r\n\r\nhello").count(), 1, "{first}{second}: {answer}");
            assert!(answer.contains("connection: close"), "the client is told: {answer}");
            let heard = service.heard().await;
            assert!(!heard.contains("second") && !heard.contains("evil"), "{first}{second}: {heard}");
        }
    }
    assert!(service.heard_nothing());
}

#[tokio::test]
async fn a_request_after_the_answer_is_judged_on_a_connection_of_its_own() {
    let mut service = Service::start(false, OK).await;
    let worker = Worker::plain(&service);
    let own = format!("GET http://localhost:{}/ HTTP/1.1\r\n\r\n", service.port);
    let (mut client, stream) = UnixStream::pair().unwrap();
    client.write_all(own.as_bytes()).await.unwrap();
    let kept_alive = async {
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).await.unwrap();
        assert!(answer.ends_with(b"hello"), "{answer:?}");
        client.write_all(b"GET /second HTTP/1.1\r\nHost: evil.example\r\n\r\n").await.unwrap_err();
    };
    tokio::join!(worker.proxy.carry(stream), kept_alive);
    assert!(!service.heard().await.contains("second"));
    let other = worker.ask("GET http://evil.example/second HTTP/1.1\r\n\r\n").await;
    assert!(other.starts_with("HTTP/1.1 403 ") && other.ends_with("name not allowed"), "{other}");
    assert!(worker.ask(&own).await.ends_with("hello"));
    service.heard().await;
    assert!(service.heard_nothing());
}

#[tokio::test]
async fn what_two_readers_may_read_differently_reaches_nobody() {
    let mut service = Service::start(false, OK).await;
    let port = service.port;
    for request in [
        "POST http://HOST/ HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST http://HOST/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
        "POST http://HOST/ HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
        "POST http://HOST/ HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "POST http://HOST/ HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "GET http://HOST/ HTTP/1.1\r\nX: y\nHost: evil.example\r\n\r\n",
        "GET http://HOST/ HTTP/1.1\nHost: evil.example\r\n\r\n",
        "GET http://HOST/ HTTP/1.1\r\nHost: evil.example\r\n\r\n",
        "GET http://HOST/ HTTP/1.1\r\nHost: HOST\r\nHost: evil.example\r\n\r\n",
        "GET http://HOST/ HTTP/1.1\r\nHost : evil.example\r\n\r\n",
        "GET http://HOST/a b HTTP/1.1\r\n\r\n",
    ] {
        let answer = Worker::plain(&service).ask(request.replace("HOST", &format!("localhost:{port}"))).await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{request:?}: {answer}");
        assert!(service.heard_nothing(), "{request:?}");
    }
    let inner = "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n";
    let answer =
        Worker::plain(&service).ask(format!("CONNECT localhost:{port} HTTP/1.1\r\n\r\n{inner}")).await;
    assert!(answer.ends_with("Established\r\n\r\n"), "{answer}");
    // A connection was opened.
    assert_eq!(service.heard().await, "");
}

#[tokio::test]
async fn a_credential_whose_call_has_ended_since_its_tunnel_was_opened_is_not_used() {
    let mut service = Service::start(false, OK).await;
    let mut worker = Worker::of(&service);
    let active = worker.active.take();
    let port = service.port;
    let (mut client, stream) = UnixStream::pair().unwrap();
    client.write_all(format!("CONNECT localhost:{port} HTTP/1.1\r\n\r\n").as_bytes()).await.unwrap();
    let late = async {
        let mut established = [0; 39];
        client.read_exact(&mut established).await.unwrap();
        drop(active);
        let request = format!("GET / HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n");
        client.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        answer
    };
    let (_, answer) = tokio::join!(worker.proxy.carry(stream), late);
    assert!(answer.starts_with("HTTP/1.1 403 ") && !answer.contains(KEY), "{answer}");
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(service.heard_nothing());
}
