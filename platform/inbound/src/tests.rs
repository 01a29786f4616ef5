mod proved;

use std::sync::atomic::{AtomicUsize, Ordering};

use axum::routing::get;
use futures::TryStreamExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinHandle;

use super::*;

/// Time limit against a hanging test.
const GUARD: Duration = Duration::from_secs(30);

struct Server {
    address: SocketAddr,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

async fn start(router: Router, connections: usize, first_request: Duration) -> Server {
    start_within(router, ConnectionLimits { connections, first_request, unread: UNREAD_TIMEOUT }).await
}

async fn start_within(router: Router, limits: ConnectionLimits) -> Server {
    let (listener, address) = bind("127.0.0.1".parse().unwrap(), 0, "test").await.unwrap();
    let stop = CancellationToken::new();
    let task = tokio::spawn(serve_within(listener, router, stop.clone(), Duration::from_secs(20), limits));
    Server { address, stop, task }
}

fn hello() -> Router {
    Router::new().route("/", get(|| async { "hello" }))
}

async fn ask(client: &reqwest::Client, address: SocketAddr) -> String {
    let sent = client.get(format!("http://{address}/")).send();
    tokio::time::timeout(GUARD, sent).await.unwrap().unwrap().text().await.unwrap()
}

fn both() -> [reqwest::Client; 2] {
    [
        reqwest::Client::builder().http1_only().build().unwrap(),
        reqwest::Client::builder().http2_prior_knowledge().build().unwrap(),
    ]
}

#[tokio::test]
async fn both_http_versions_are_served_and_an_open_request_finishes_before_the_end() {
    let (started, mut running) = tokio::sync::mpsc::channel::<()>(1);
    let finish = Arc::new(tokio::sync::Notify::new());
    let gate = Arc::clone(&finish);
    let slow = move || async move {
        started.send(()).await.unwrap();
        gate.notified().await;
        "done"
    };
    let server = start(hello().route("/slow", get(slow)), 100, GUARD).await;
    let address = server.address;
    for client in both() {
        assert_eq!(ask(&client, address).await, "hello");
    }
    let [plain, _] = both();
    let slow = tokio::spawn(plain.get(format!("http://{address}/slow")).send());
    running.recv().await.unwrap();
    server.stop.cancel();
    finish.notify_one();
    assert_eq!(slow.await.unwrap().unwrap().text().await.unwrap(), "done");
    server.task.await.unwrap();
    assert!(plain.get(format!("http://{address}/")).send().await.is_err(), "no new connection");
}

#[tokio::test]
async fn connections_that_bring_no_request_are_closed_in_time_whatever_they_begin_to_say() {
    let server = start(hello(), 100, Duration::from_millis(100)).await;
    let settings = b"\0\0\0\x04\0\0\0\0\0".as_slice();
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".as_slice();
    for said in [
        b"".as_slice(),
        b"P",
        b"PRI * HTTP/2.0\r\n",
        b"GET / HTTP/1.1\r\nhost:",
        &[preface, settings].concat(),
    ] {
        let mut silent = TcpStream::connect(server.address).await.unwrap();
        silent.write_all(said).await.unwrap();
        let mut heard = Vec::new();
        let closed = tokio::time::timeout(GUARD, silent.read_to_end(&mut heard)).await;
        // A reset ends it too.
        assert!(closed.is_ok(), "{said:?}");
    }
}

#[tokio::test]
async fn a_connection_that_has_asked_once_is_not_closed_for_being_slow_to_answer() {
    let slow = || async {
        tokio::time::sleep(Duration::from_secs(3)).await;
        "done"
    };
    let server = start(Router::new().route("/", get(slow)), 100, Duration::from_secs(2)).await;
    for client in both() {
        assert_eq!(ask(&client, server.address).await, "done");
    }
}

#[tokio::test]
async fn silent_connections_make_room_when_all_places_are_taken() {
    // Their own silence would close them only after the time limit.
    let server = start(hello(), 8, GUARD * 10).await;
    let mut silent = Vec::new();
    for _ in 0..40 {
        silent.push(TcpStream::connect(server.address).await.unwrap());
    }
    for client in both() {
        assert_eq!(ask(&client, server.address).await, "hello");
    }
}

#[tokio::test]
async fn an_open_answer_keeps_its_connection_and_an_idle_one_makes_room() {
    let (chunks, stream) = tokio::sync::mpsc::channel::<Result<&'static str, std::io::Error>>(1);
    let stream = Arc::new(parking_lot::Mutex::new(Some(tokio_stream::wrappers::ReceiverStream::new(stream))));
    let streamed = move || async move { Body::from_stream(stream.lock().take().unwrap()) };
    let server = start(hello().route("/stream", get(streamed)), 2, GUARD * 10).await;
    let [one, two] = both();
    let mut open = one.get(format!("http://{}/stream", server.address)).send().await.unwrap();
    // The second permit: one request, idle since.
    assert_eq!(ask(&two, server.address).await, "hello");
    for client in both() {
        assert_eq!(ask(&client, server.address).await, "hello", "in the place of an idle one");
    }
    chunks.send(Ok("still here")).await.unwrap();
    assert_eq!(open.chunk().await.unwrap().unwrap(), "still here");
}

#[tokio::test]
async fn headers_of_sixty_kibibytes_are_taken_by_both_http_versions() {
    let server = start(hello(), 100, GUARD).await;
    let value = "v".repeat(6 * 1024);
    for client in both() {
        let mut request = client.get(format!("http://{}/", server.address));
        for number in 0..10 {
            request = request.header(format!("x-number-{number}"), &value);
        }
        assert_eq!(request.send().await.unwrap().status(), 200);
    }
}

#[tokio::test]
async fn headers_beyond_the_bound_are_answered_by_431_and_nothing_more() {
    let server = start(hello(), 100, GUARD).await;
    let value = "v".repeat(30 * 1024);
    for client in both() {
        let mut request = client.get(format!("http://{}/", server.address));
        for number in 0..10 {
            request = request.header(format!("x-number-{number}"), &value);
        }
        let answer = request.send().await.unwrap();
        assert_eq!((answer.status().as_u16(), answer.text().await.unwrap()), (431, String::new()));
    }
}

#[tokio::test]
async fn a_request_runs_on_its_connections_task_until_it_waits_and_holds_up_no_other_one() {
    let gate = Arc::new(tokio::sync::Notify::new());
    let opened = Arc::clone(&gate);
    let (started, mut waits) = tokio::sync::mpsc::channel::<()>(1);
    let here = || async { tokio::task::id().to_string() };
    let waiting = move || async move {
        tokio::task::yield_now().await;
        started.send(()).await.unwrap();
        opened.notified().await;
        tokio::task::id().to_string()
    };
    async fn failing() -> &'static str {
        std::panic::resume_unwind(Box::new("a fault of the handler"))
    }
    let router =
        Router::new().route("/", get(here)).route("/waiting", get(waiting)).route("/fails", get(failing));
    let server = start(router, 100, GUARD).await;
    let [_, client] = both();
    let connection = ask(&client, server.address).await;
    let slow = tokio::spawn(client.get(format!("http://{}/waiting", server.address)).send());
    waits.recv().await.unwrap();
    assert!(client.get(format!("http://{}/fails", server.address)).send().await.is_err());
    assert_eq!(ask(&client, server.address).await, connection, "no task of its own, on the same connection");
    gate.notify_one();
    assert_ne!(slow.await.unwrap().unwrap().text().await.unwrap(), connection, "a task of its own");
}

#[tokio::test]
async fn more_requests_than_a_turn_has_time_for_are_all_answered() {
    let server = start(hello(), 100, GUARD).await;
    let [_, client] = both();
    let asked = (0..200).map(|_| ask(&client, server.address));
    assert!(futures::future::join_all(asked).await.iter().all(|answer| answer == "hello"));
}

/// Signals on a channel that it was dropped.
struct DropSignal(tokio::sync::mpsc::UnboundedSender<()>);

impl Drop for DropSignal {
    fn drop(&mut self) {
        let _ = self.0.send(());
    }
}

/// Body with one large part, and something after it.
#[tokio::test]
async fn a_large_part_that_is_read_slowly_arrives_whole() {
    let unread = Duration::from_secs(2);
    let large = || async {
        let parts = [vec![b'x'; 1 << 20], vec![b'y'; 1]];
        let parts = parts.map(|part| Ok::<_, std::convert::Infallible>(bytes::Bytes::from(part)));
        Body::from_stream(futures::stream::iter(parts))
    };
    let router = hello().route("/large", get(large));
    let server =
        start_within(router, ConnectionLimits { connections: 100, first_request: GUARD, unread }).await;
    let client = reqwest::Client::builder()
        .http2_prior_knowledge()
        .http2_initial_stream_window_size(65_535)
        .build()
        .unwrap();
    let mut response = client.get(format!("http://{}/large", server.address)).send().await.unwrap();
    let began = tokio::time::Instant::now();
    let (mut read, mut paused) = (0, 0);
    while let Some(part) = response.chunk().await.unwrap() {
        read += part.len();
        // Never as slow as a client that is given up, but longer in total.
        if read >= paused + (64 << 10) {
            paused = read;
            tokio::time::sleep(unread / 8).await;
        }
    }
    assert_eq!(read, (1 << 20) + 1);
    assert!(began.elapsed() > unread);
}

/// Returns an endless stream of 16 KiB parts, with `pause` before each.
fn endless(pause: Duration, dropped: tokio::sync::mpsc::UnboundedSender<()>) -> Body {
    Body::from_stream(futures::stream::unfold(DropSignal(dropped), move |held| async move {
        tokio::time::sleep(pause).await;
        Some((Ok::<_, std::convert::Infallible>(bytes::Bytes::from(vec![b'x'; 16 << 10])), held))
    }))
}

/// Serves such streams without a pause at `/fast`, and counts the bytes they gave.
fn counted(dropped: tokio::sync::mpsc::UnboundedSender<()>) -> (Router, Arc<AtomicUsize>) {
    let given = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&given);
    let fast = move || {
        let (dropped, counted) = (dropped.clone(), Arc::clone(&counted));
        async move {
            let parts = endless(Duration::ZERO, dropped).into_data_stream();
            Body::from_stream(parts.inspect_ok(move |part| {
                counted.fetch_add(part.len(), Ordering::Relaxed);
            }))
        }
    };
    (hello().route("/fast", get(fast)), given)
}

#[tokio::test]
async fn of_a_response_over_http_1_that_nobody_reads_little_waits_and_its_connection_is_closed() {
    let unread = Duration::from_secs(2);
    let (dropped, mut drops) = tokio::sync::mpsc::unbounded_channel();
    let (router, given) = counted(dropped);
    let server =
        start_within(router, ConnectionLimits { connections: 100, first_request: GUARD, unread }).await;
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(8 << 10).unwrap();
    let mut silent = socket.connect(server.address).await.unwrap();
    let began = tokio::time::Instant::now();
    silent.write_all(b"GET /fast HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    assert!(tokio::time::timeout(GUARD, drops.recv()).await.unwrap().is_some());
    assert!(began.elapsed() >= unread);
    // Bytes in the library, in the batch, and twice the number in the kernel, which also counts its overhead for each
    // packet.
    let most = MAX_UNSENT + 32 * 1024 + 2 * MAX_UNSENT + 64 * 1024;
    let given = given.load(Ordering::Relaxed);
    assert!(given <= most, "{given} bytes wait for a client that reads nothing");
    for client in both() {
        assert_eq!(ask(&client, server.address).await, "hello");
    }
}

#[tokio::test]
async fn of_a_response_that_nobody_reads_little_waits_and_it_is_reset_and_its_neighbours_are_not() {
    let unread = Duration::from_secs(2);
    let (dropped, mut drops) = tokio::sync::mpsc::unbounded_channel();
    let (kept, mut kept_drops) = tokio::sync::mpsc::unbounded_channel();
    let (router, given) = counted(dropped);
    // Silent for longer than a client may go without reading.
    let quiet = {
        let kept = kept.clone();
        move || {
            let kept = kept.clone();
            async move { endless(UNREAD_TIMEOUT, kept) }
        }
    };
    let steady = move || {
        let kept = kept.clone();
        async move { endless(Duration::from_millis(1), kept) }
    };
    let router = router.route("/quiet", get(quiet)).route("/steady", get(steady));
    let server =
        start_within(router, ConnectionLimits { connections: 100, first_request: GUARD, unread }).await;
    let client = reqwest::Client::builder()
        .http2_prior_knowledge()
        .http2_initial_stream_window_size(65_535)
        .http2_initial_connection_window_size(64 << 20)
        .build()
        .unwrap();
    let url = |path: &str| format!("http://{}{path}", server.address);
    let quiet = client.get(url("/quiet")).send().await.unwrap();
    let mut slow = client.get(url("/steady")).send().await.unwrap();
    let began = tokio::time::Instant::now();
    let mut silent = client.get(url("/fast")).send().await.unwrap();
    let given_up = tokio::time::timeout(GUARD, drops.recv());
    let reads = async {
        loop {
            // Slow, but more often than required of a client.
            tokio::time::sleep(unread / 100).await;
            slow.chunk().await.unwrap().unwrap();
        }
    };
    tokio::select! {
        ended = given_up => assert!(ended.unwrap().is_some()),
        () = reads => unreachable!(),
    }
    assert!(began.elapsed() >= unread);
    // Data in flight arrives, then the reset instead of an end.
    let mut read = 0;
    let error = loop {
        match silent.chunk().await {
            Ok(Some(part)) => read += part.len(),
            Ok(None) => panic!("it ended as if it were whole"),
            Err(error) => break error,
        }
    };
    assert!(!error.is_timeout(), "{error}");
    let waited = given.load(Ordering::Relaxed) - read;
    assert!(waited <= MAX_UNSENT, "{waited} bytes wait for a client that reads nothing");
    assert_eq!(ask(&client, server.address).await, "hello");
    assert!(slow.chunk().await.unwrap().is_some());
    assert!(kept_drops.try_recv().is_err(), "a quiet stream and a slow reader are kept");
    drop(quiet);
}

#[test]
fn a_process_may_open_as_many_files_as_its_account_allows() {
    let resource = rustix::process::Resource::Nofile;
    let before = rustix::process::getrlimit(resource);
    let low = rustix::process::Rlimit { current: Some(512), maximum: before.maximum };
    rustix::process::setrlimit(resource, low).unwrap();
    raise_open_files();
    let most = before.maximum.unwrap_or(MOST_FILES).min(MOST_FILES);
    assert_eq!(rustix::process::getrlimit(resource).current, Some(most));
}
