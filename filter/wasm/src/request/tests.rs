//! The callbacks in every order in which Envoy calls them, with a host that records the calls it gets.

use std::cell::{Cell, RefCell};

use asp_edge::{Reason, UnauthenticatedKind};
use asp_proto::snapshot::{AuthScheme, EdgeServer, EdgeSnapshot, Protocol, Route};
use prost::Message;

use super::*;

const LIST: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;

#[derive(Default)]
struct Recorder {
    headers: Vec<u8>,
    body: RefCell<Vec<u8>>,
    removed: RefCell<Vec<String>>,
    set: RefCell<Vec<(String, String)>>,
    cleared: Cell<u32>,
    replies: RefCell<Vec<Reply>>,
    counted: RefCell<Vec<VerdictLabel>>,
    refused_orgs: RefCell<Vec<String>>,
    limited: RefCell<Vec<UnauthenticatedKind>>,
    response: Vec<(&'static str, &'static str)>,
    body_reads: Cell<u32>,
    informed: RefCell<Vec<String>>,
    warned: RefCell<Vec<String>>,
}

impl Host for Recorder {
    fn headers(&self) -> Vec<u8> {
        self.headers.clone()
    }
    fn body(&self, size: usize) -> Vec<u8> {
        self.body_reads.set(self.body_reads.get() + 1);
        self.body.borrow()[..size].to_vec()
    }
    fn info(&self, text: &str) {
        self.informed.borrow_mut().push(text.to_owned());
    }
    fn warn(&self, text: &str) {
        self.warned.borrow_mut().push(text.to_owned());
    }
    fn remove_header(&self, name: &str) {
        self.removed.borrow_mut().push(name.to_owned());
    }
    fn set_header(&self, name: &str, value: &str) {
        self.set.borrow_mut().push((name.to_owned(), value.to_owned()));
    }
    fn clear_route_cache(&self) {
        self.cleared.set(self.cleared.get() + 1);
    }
    fn respond(&self, reply: &Reply) {
        self.replies.borrow_mut().push(reply.clone());
    }
    fn now_ms(&self) -> u64 {
        2_000_000_000_000
    }
    fn peer(&self) -> Option<String> {
        Some("192.0.2.7:4711".to_owned())
    }
    fn count(&self, counted: VerdictLabel) {
        self.counted.borrow_mut().push(counted);
    }
    fn count_refusal_of(&self, org: &str) {
        self.refused_orgs.borrow_mut().push(org.to_owned());
    }
    fn count_limited(&self, kind: UnauthenticatedKind) {
        self.limited.borrow_mut().push(kind);
    }
    fn response_header(&self, name: &str) -> Option<Vec<u8>> {
        let found = self.response.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| value.as_bytes().to_vec())
    }
}

fn vm() -> Vm {
    let server = EdgeServer {
        name: "open".into(),
        protocols: vec![Protocol::Mcp as i32],
        default_allow: true,
        schemes: vec![AuthScheme::None as i32],
        max_body_bytes: 1000,
        ..EdgeServer::default()
    };
    let route = Route {
        server: "*".into(),
        method: "tools/list".into(),
        primitive: "*".into(),
        cluster: "pool".into(),
    };
    let snapshot = EdgeSnapshot {
        revision: 1,
        public_url: "https://h".into(),
        servers: vec![server],
        routes: vec![route],
        ..EdgeSnapshot::default()
    };
    let vm = Vm::default();
    vm.configure(&snapshot.encode_to_vec()).unwrap();
    vm
}

fn host(method: &str, path: &str) -> Recorder {
    let pairs =
        [(":method", method), (":path", path), ("content-type", "application/json"), ("x-asp-route", "evil")];
    let headers = map::tests::serialized(&pairs.map(|(name, value)| (name, value.as_bytes())));
    Recorder { headers, ..Recorder::default() }
}

fn reason(host: &Recorder) -> Option<Reason> {
    host.replies.borrow().first().and_then(|reply| reply.reason)
}

#[test]
fn a_request_without_body_is_decided_at_once() {
    let vm = vm();
    let host = host("GET", "/open/mcp");
    let mut request = Request::default();
    assert_eq!(request.on_headers(&vm, &host, true), Flow::Continue);
    assert_eq!(*host.removed.borrow(), ["x-asp-route"]);
    assert_eq!(host.set.borrow()[0].0, "x-asp-affinity");
    assert_eq!(host.set.borrow()[1], ("x-asp-peer".into(), "192.0.2.7:4711".into()));
    assert_eq!(*host.counted.borrow(), [VerdictLabel::Forward]);
}

#[test]
fn headers_wait_for_the_end_of_the_body() {
    let vm = vm();
    let host = host("POST", "/open/mcp");
    let mut request = Request::default();
    assert_eq!(request.on_headers(&vm, &host, false), Flow::Pause);
    assert_eq!(request.on_body(&vm, &host, 10, false), Flow::Pause);
    assert!(host.set.borrow().is_empty() && host.body_reads.get() == 0);
    host.body.replace(LIST.into());
    assert_eq!(request.on_body(&vm, &host, LIST.len(), true), Flow::Continue);
    assert_eq!((host.body_reads.get(), host.cleared.get()), (1, 1));
    assert!(host.set.borrow().contains(&("x-asp-route".into(), "pool".into())));
}

#[test]
fn trailers_end_a_body_as_its_last_byte_does() {
    for (body, expected) in
        [(LIST, None), ("{}", Some(Reason::InvalidRequest)), ("", Some(Reason::ParseError))]
    {
        let vm = vm();
        let host = host("POST", "/open/mcp");
        let mut request = Request::default();
        assert_eq!(request.on_headers(&vm, &host, false), Flow::Pause);
        host.body.replace(body.into());
        if !body.is_empty() {
            assert_eq!(request.on_body(&vm, &host, body.len(), false), Flow::Pause);
        }
        let flow = request.on_trailers(&vm, &host);
        assert_eq!((flow == Flow::Continue, reason(&host)), (expected.is_none(), expected), "{body}");
    }
}

#[test]
fn a_body_is_refused_as_soon_as_it_is_too_long() {
    let vm = vm();
    let host = host("POST", "/open/mcp");
    let mut request = Request::default();
    request.on_headers(&vm, &host, false);
    assert_eq!(request.on_body(&vm, &host, 1001, false), Flow::Pause);
    assert_eq!((reason(&host), host.body_reads.get()), (Some(Reason::BodyTooLarge), 0));
}

#[test]
fn after_an_answer_nothing_passes_and_nothing_is_answered_twice() {
    let vm = vm();
    let host = host("POST", "/nobody/mcp");
    let mut request = Request::default();
    assert_eq!(request.on_headers(&vm, &host, false), Flow::Pause);
    assert_eq!(request.on_body(&vm, &host, 5, true), Flow::Pause);
    assert_eq!(request.on_trailers(&vm, &host), Flow::Pause);
    assert_eq!(host.replies.borrow().len(), 1);
    let trace = host.replies.borrow()[0].trace.unwrap();
    let line = format!("request refused: reason=unknown_server trace={trace}");
    assert_eq!((&*host.informed.borrow(), host.warned.borrow().len()), (&vec![line], 0));
    assert_eq!(*host.counted.borrow(), [VerdictLabel::Refuse(Reason::UnknownServer)]);
    assert!(host.refused_orgs.borrow().is_empty(), "nobody knows the caller");
}

#[test]
fn after_a_request_is_let_through_its_body_streams() {
    let vm = vm();
    let host = host("PUT", "/open/mcp");
    let mut request = Request::default();
    assert_eq!(request.on_headers(&vm, &host, false), Flow::Continue);
    assert_eq!(request.on_body(&vm, &host, 1 << 30, false), Flow::Continue);
    assert_eq!(request.on_trailers(&vm, &host), Flow::Continue);
    assert_eq!(host.body_reads.get(), 0);
}

#[test]
fn a_request_is_judged_by_the_snapshot_it_began_with() {
    let vm = vm();
    let host = host("POST", "/open/mcp");
    let mut request = Request::default();
    request.on_headers(&vm, &host, false);
    let empty = EdgeSnapshot { revision: 2, public_url: "https://h".into(), ..EdgeSnapshot::default() };
    vm.configure(&empty.encode_to_vec()).unwrap();
    host.body.replace(LIST.into());
    assert_eq!(request.on_body(&vm, &host, LIST.len(), true), Flow::Continue);
}

/// A VM with one server, of opaque tokens, at a rate of one a second, so of ten at once.
fn vm_of_opaque() -> Vm {
    let server = EdgeServer {
        name: "opaque".into(),
        protocols: vec![Protocol::Mcp as i32],
        default_allow: true,
        schemes: vec![AuthScheme::Opaque as i32],
        max_body_bytes: 1000,
        ..EdgeServer::default()
    };
    let snapshot = EdgeSnapshot {
        revision: 1,
        public_url: "https://h".into(),
        servers: vec![server],
        unauthenticated_rate: 1,
        ..EdgeSnapshot::default()
    };
    let vm = Vm::default();
    vm.configure(&snapshot.encode_to_vec()).unwrap();
    vm
}

#[test]
fn the_response_tells_whether_a_credential_counts_that_only_the_gateway_can_verify() {
    let vm = vm_of_opaque();
    let answered = |authorization: &str, status: &'static str| {
        let pairs = [(":method", "GET"), (":path", "/opaque/mcp"), ("authorization", authorization)];
        let headers = map::tests::serialized(&pairs.map(|(name, value)| (name, value.as_bytes())));
        let host = Recorder { headers, response: vec![(":status", status)], ..Recorder::default() };
        let mut request = Request::default();
        let flow = request.on_headers(&vm, &host, true);
        request.on_response(&vm, &host);
        assert_eq!(request.on_trailers(&vm, &host), flow, "the response changes nothing");
        (flow, host.limited.take())
    };
    assert_eq!(answered("Bearer good", "200"), (Flow::Continue, vec![]));
    for _ in 0..10 {
        assert_eq!(answered("Bearer bad", "401"), (Flow::Continue, vec![]));
    }
    let refused = (Flow::Pause, vec![UnauthenticatedKind::Unverified]);
    assert_eq!(answered("Bearer bad", "401"), refused);
    assert_eq!(answered("Bearer other", "200"), refused);
    assert_eq!(answered("Bearer good", "401"), (Flow::Continue, vec![]));
    assert_eq!(answered("Bearer good", "200"), refused, "refused since");
}

#[test]
fn a_host_without_headers_is_refused() {
    let vm = vm();
    let host = Recorder::default();
    let mut request = Request::default();
    assert_eq!(request.on_headers(&vm, &host, true), Flow::Pause);
    assert_eq!(reason(&host), Some(Reason::UnknownServer));
}
