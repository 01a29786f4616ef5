//! Tests of many tunnels on one ProxyPpp stream.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use asp_proto::plugin::ServerMessage;
use asp_proto::plugin::server_message::Payload as Out;
use asp_proto::supervisor::ppp_server_frame::Payload;
use asp_proto::supervisor::tunnel_event::Type;
use asp_proto::supervisor::{
    AllocateWorkerResponse, CloseTunnelRequest, CloseTunnelResponse, EndExecutionRequest, PppClientFrame,
    PppServerFrame, admission,
};
use asp_runtime_client::admission::fault;
use asp_runtime_client::multiplexer::Client;
use prost::{Message, Name};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status, Streaming};

use super::harness::{PATIENCE, Stack, eventually, invocation, start, wanted};

/// Time that a worker has to end a cancelled call before it is killed.
const CANCEL_GRACE: Duration = Duration::from_secs(2);

/// A gateway's end of a shared stream, frame by frame: what the runtime's client does not let through can be sent here.
pub(super) struct Shared {
    send: mpsc::Sender<PppClientFrame>,
    frames: Streaming<PppServerFrame>,
    /// Payloads that arrived while something else was awaited, by name.
    kept: HashMap<String, Vec<Payload>>,
}

impl Shared {
    pub(super) async fn open(stack: &Stack) -> Shared {
        Shared::over(stack.client.clone()).await
    }

    /// Opens the stream of another gateway.
    pub(super) async fn over(mut client: Client) -> Shared {
        let (send, frames) = mpsc::channel(64);
        send.send(PppClientFrame { keepalive: true, ..PppClientFrame::default() }).await.unwrap();
        let frames = client.proxy_ppp(ReceiverStream::new(frames)).await.unwrap().into_inner();
        Shared { send, frames, kept: HashMap::new() }
    }

    pub(super) async fn put(&self, name: &str, message: &impl Name) {
        self.send.send(PppClientFrame::carrying(name, message)).await.unwrap();
    }

    pub(super) async fn invoke(&self, name: &str, request_id: &str, arguments: &Value) {
        self.put(name, &invocation(request_id, &arguments.to_string(), None)).await;
    }

    /// Closes the gateway's side.
    pub(super) fn half_close(&mut self) {
        self.send = mpsc::channel(1).0;
    }

    /// Requests a worker and gives it a call once it is there. Returns the tunnel's handle.
    pub(super) async fn begin(
        &mut self,
        name: &str,
        plugin: &str,
        request_id: &str,
        arguments: &Value,
    ) -> String {
        self.put(name, &wanted(plugin, "tenant")).await;
        let id = self.allocated(name).await;
        self.until_event(&id, Type::TunnelReady).await;
        self.invoke(&id, request_id, arguments).await;
        id
    }

    pub(super) async fn next(&mut self) -> Result<Option<PppServerFrame>, Status> {
        timeout(PATIENCE, self.frames.message()).await.expect("the stream hangs")
    }

    /// Returns the next payload under `name`.
    pub(super) async fn of(&mut self, name: &str) -> Payload {
        loop {
            if let Some(kept) = self.kept.get_mut(name).filter(|kept| !kept.is_empty()) {
                return kept.remove(0);
            }
            let frame = self.next().await.unwrap().expect("the stream ended");
            self.kept.entry(frame.tunnel_id).or_default().push(frame.payload.unwrap());
        }
    }

    /// Returns the handle in the answer to the request for a worker.
    pub(super) async fn allocated(&mut self, name: &str) -> String {
        let Payload::Ppp(any) = self.of(name).await else { panic!("no answer") };
        assert_eq!(any.type_url, AllocateWorkerResponse::type_url());
        AllocateWorkerResponse::decode(any.value.as_slice()).unwrap().handle.unwrap().tunnel_id
    }

    /// Reads until the tunnel's event.
    pub(super) async fn until_event(&mut self, id: &str, kind: Type) -> asp_proto::supervisor::TunnelEvent {
        loop {
            if let Payload::Event(event) = self.of(id).await
                && event.r#type() == kind
            {
                return event;
            }
        }
    }

    /// Reads until the tunnel's result, and returns its output as JSON.
    pub(super) async fn output(&mut self, id: &str) -> Value {
        loop {
            let Payload::Ppp(any) = self.of(id).await else { continue };
            let message = ServerMessage::decode(any.value.as_slice()).unwrap().payload.unwrap();
            match message {
                Out::Completed(done) => return serde_json::from_slice(&done.output.unwrap().value).unwrap(),
                Out::Failed(failed) => panic!("{failed:?}"),
                _ => {}
            }
        }
    }

    /// Reads half a window of the tunnel in each `period`, for ever.
    pub(super) fn read_each(&self, period: Duration, id: &str) -> impl Future<Output = ()> + 'static {
        let read = PppClientFrame { tunnel_id: id.to_owned(), ppp: None, keepalive: true };
        let send = self.send.clone();
        let mut periods = tokio::time::interval(period);
        async move {
            loop {
                periods.tick().await;
                // Err: the stream has ended, which the test detects.
                let _ = send.send(read.clone()).await;
            }
        }
    }

    pub(super) async fn close(&mut self, id: &str) -> CloseTunnelResponse {
        let request = CloseTunnelRequest { tunnel_id: id.into(), reason: "completed".into() };
        self.put(id, &request).await;
        loop {
            if let Payload::Ppp(any) = self.of(id).await
                && any.type_url == CloseTunnelResponse::type_url()
            {
                return CloseTunnelResponse::decode(any.value.as_slice()).unwrap();
            }
        }
    }
}

/// Returns the gRPC code of a TUNNEL_CLOSED after a fault.
pub(super) fn code(event: &asp_proto::supervisor::TunnelEvent) -> Option<Code> {
    fault(event).map(|status| status.code())
}

#[tokio::test]
async fn a_call_is_asked_for_begun_and_closed_on_the_stream() {
    let stack = start(&[("echo", json!({}))]).await;
    let mut shared = Shared::open(&stack).await;
    for text in ["cold", "warm"] {
        let id = shared.begin(&format!("+{text}"), "echo", text, &json!({"text": text})).await;
        assert_eq!(shared.output(&id).await["text"], text);
        let stats = shared.close(&id).await.stats.unwrap();
        for figure in ["cpu_ms", "rss_max", "bytes_in", "bytes_out", "duration_ms"] {
            assert!(stats.fields.contains_key(figure), "{figure}");
        }
    }
    assert_eq!(stack.figure("echo@1.0.0", "active").await, 0);
}

#[tokio::test]
async fn tunnels_share_a_stream() {
    let stack = start(&[("echo", json!({"pool": {"max": 1, "concurrency": 8}}))]).await;
    let mut shared = Shared::open(&stack).await;
    let mut ids = Vec::new();
    for number in 0..6 {
        let id = format!("call-{number}");
        let slow = json!({"mode": "slow", "ms": 20 - number});
        ids.push(shared.begin(&format!("+{number}"), "echo", &id, &slow).await);
    }
    for (number, id) in (0..6).zip(&ids) {
        assert_eq!(shared.output(id).await, json!({"slept": 20 - number}));
    }
}

#[tokio::test]
async fn a_wrong_frame_is_answered_under_its_name_and_hurts_nothing_else() {
    let stack = start(&[("echo", json!({}))]).await;
    stack.call("echo", "warm", &json!({})).await;
    let mut shared = Shared::open(&stack).await;
    let id = shared.begin("+1", "echo", "one", &json!({"mode": "slow", "ms": 200})).await;
    shared.invoke("+1", "x", &json!({})).await;
    let closed = shared.until_event("+1", Type::TunnelClosed).await;
    assert_eq!(code(&closed), Some(Code::FailedPrecondition), "the name is the request's alone: {closed:?}");
    let unknown = "0".repeat(32);
    shared.invoke(&unknown, "x", &json!({})).await;
    let closed = shared.until_event(&unknown, Type::TunnelClosed).await;
    assert_eq!(code(&closed), Some(Code::NotFound), "{closed:?}");
    let request = CloseTunnelRequest { tunnel_id: unknown.clone(), reason: String::new() };
    shared.put(&unknown, &request).await;
    assert_eq!(code(&shared.until_event(&unknown, Type::TunnelClosed).await), Some(Code::NotFound));
    shared.put("+2", &wanted("nobody", "t")).await;
    let Payload::Ppp(any) = shared.of("+2").await else { panic!() };
    let refused = AllocateWorkerResponse::decode(any.value.as_slice()).unwrap();
    assert_eq!(refused.admission.unwrap().status(), admission::Status::Rejected);
    let wrong = shared.begin("+3", "echo", "three", &json!({"mode": "slow", "ms": 5000})).await;
    shared.put(&wrong, &ServerMessage::default()).await;
    assert_eq!(code(&shared.until_event(&wrong, Type::TunnelClosed).await), Some(Code::InvalidArgument));
    assert_eq!(shared.output(&id).await, json!({"slept": 200}), "the call beside goes on");
}

#[tokio::test]
async fn a_gateway_that_opens_a_tunnel_in_an_older_way_learns_what_to_do() {
    let stack = start(&[("echo", json!({}))]).await;
    let mut client = stack.client.clone();
    let allocated = client.allocate_worker(wanted("echo", "t")).await.map(drop);
    let first = PppClientFrame { tunnel_id: "0".repeat(32), ..PppClientFrame::default() };
    let opened = client.proxy_ppp(tokio_stream::iter([first])).await.map(drop);
    for refused in [allocated, opened] {
        let status = refused.unwrap_err();
        assert_eq!(status.code(), Code::Unimplemented);
        assert!(status.message().contains("on a shared stream"), "{status:?}");
    }
    assert_eq!(stack.health().await["tunnels"], 0);
}

#[tokio::test]
async fn a_tunnel_whose_events_are_not_acknowledged_ends_alone() {
    let stack = start(&[("echo", json!({"pool": {"max": 2, "concurrency": 1}}))]).await;
    let mut shared = Shared::open(&stack).await;
    let flooded = shared.begin("+1", "echo", "one", &json!({"mode": "flood"})).await;
    let id = shared.begin("+2", "echo", "two", &json!({"text": "x"})).await;
    assert_eq!(shared.output(&id).await["text"], "x", "the flood's window is full, this one's is not");
    // Progress of more than a window was sent and never acknowledged: the call ends, and its worker with it.
    eventually("the flooding worker is ended", || async { stack.figure("echo@1.0.0", "crashes").await == 1 })
        .await;
    shared.until_event(&flooded, Type::RuntimeOverload).await;
    shared.until_event(&flooded, Type::TunnelClosed).await;
    let id = shared.begin("+3", "echo", "three", &json!({"text": "y"})).await;
    assert_eq!(shared.output(&id).await["text"], "y", "and the stream goes on");
}

#[tokio::test]
async fn a_tunnel_that_is_acknowledged_gets_more_than_a_window() {
    let stack = start(&[("echo", json!({}))]).await;
    let mut shared = Shared::open(&stack).await;
    let id = shared.begin("+1", "echo", "one", &json!({"mode": "flood"})).await;
    // A frame takes at least 4 KiB of the window of 2 MiB.
    for number in 1..=2000_u32 {
        shared.of(&id).await;
        if number.is_multiple_of(256) {
            let read = PppClientFrame { tunnel_id: id.clone(), ppp: None, keepalive: true };
            shared.send.send(read).await.unwrap();
        }
    }
}

#[tokio::test]
async fn the_calls_of_a_stream_end_with_it() {
    let stack = start(&[("echo", json!({}))]).await;
    stack.call("echo", "warm", &json!({})).await;
    let mut shared = Shared::open(&stack).await;
    for name in ["+1", "+2"] {
        shared.begin(name, "echo", name, &json!({"mode": "slow", "ms": 60_000})).await;
    }
    assert_eq!(stack.figure("echo@1.0.0", "active").await, 2);
    drop(shared);
    eventually("their slots are free", || async { stack.figure("echo@1.0.0", "active").await == 0 }).await;
}

#[tokio::test]
async fn a_gateway_that_sends_no_more_still_gets_its_answers() {
    let stack = start(&[("echo", json!({}))]).await;
    stack.call("echo", "warm", &json!({})).await;
    let mut shared = Shared::open(&stack).await;
    let id = shared.begin("+1", "echo", "one", &json!({"mode": "slow", "ms": 50})).await;
    shared.half_close();
    assert_eq!(shared.output(&id).await, json!({"slept": 50}));
    let ended = timeout(Duration::from_secs(30), async { while shared.next().await.unwrap().is_some() {} });
    ended.await.expect("the stream ends with its last tunnel");
}

#[tokio::test]
async fn a_call_that_is_run_again_waits_for_its_former_execution_to_end() {
    let stack = start(&[("echo", json!({"pool": {"max": 2, "concurrency": 1}}))]).await;
    stack.call("echo", "warm", &json!({})).await;
    let mut lost = Shared::open(&stack).await;
    let id = lost.begin("+1", "echo", "one", &json!({"mode": "ignore"})).await;
    // It has begun.
    while !matches!(lost.of(&id).await, Payload::Ppp(_)) {}
    let began = Instant::now();
    drop(lost);
    // It starts at once on another worker: the previous execution ignores its cancellation and is killed first.
    let mut shared = Shared::open(&stack).await;
    let id = shared.begin("+1", "echo", "one", &json!({"text": "again"})).await;
    assert_eq!(shared.output(&id).await["text"], "again");
    assert!(began.elapsed() >= CANCEL_GRACE, "the former execution had ended by then: {:?}", began.elapsed());
    assert_eq!(
        stack.figure("echo@1.0.0", "crashes").await,
        1,
        "the former execution ended with its worker, which is counted first"
    );
}

#[tokio::test]
async fn an_execution_is_ended_for_whoever_goes_on_with_its_call_at_another_runtime() {
    let stack = start(&[("echo", json!({"pool": {"max": 2, "concurrency": 1}}))]).await;
    stack.call("echo", "warm", &json!({})).await;
    let mut client = stack.client.clone();
    let mut end = async |request_id: &str| {
        let request = EndExecutionRequest { request_id: request_id.into() };
        client.end_execution(request).await.map(drop).map_err(|status| status.code())
    };
    let mut lost = Shared::open(&stack).await;
    let id = lost.begin("+1", "echo", "one", &json!({"mode": "ignore"})).await;
    while !matches!(lost.of(&id).await, Payload::Ppp(_)) {}
    assert_eq!(end("another").await, Ok(()), "it does not run here");
    assert_eq!(stack.figure("echo@1.0.0", "crashes").await, 0, "nobody else's call is ended");
    // As far as this runtime knows, its gateway is still there; the worker ignores the cancellation and is killed.
    let began = Instant::now();
    assert_eq!(end("one").await, Ok(()));
    assert!(began.elapsed() >= CANCEL_GRACE, "it has ended: {:?}", began.elapsed());
    let counted = || async { stack.figure("echo@1.0.0", "crashes").await == 1 };
    eventually("the worker's end is counted", counted).await;
    assert_eq!(end("").await, Err(Code::InvalidArgument));
}
