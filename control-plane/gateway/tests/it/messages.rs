//! Messages of legacy clients other than requests: how many a user may send, and which of them other gateways get.

use std::sync::Arc;

use asp_gateway::gateway::{EVENT_BYTES, Shared};
use asp_protocols::mcp::elsewhere;
use asp_store::answers::MemoryAnswers;
use asp_store::briefs::MemoryBriefs;
use asp_store::bus::{Bus, BusError, BusEvent, MemoryBus};
use asp_store::followers::MemoryFollowers;
use asp_store::inbox::MemoryInbox;
use asp_store::outbox::MemoryOutbox;
use asp_store::records::OwnerId;
use asp_store::sessions::MemoryDirectory;
use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use http::StatusCode;
use http_body_util::BodyExt;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::support::{Answer, Fixture, Legacy, snapshot};

/// Messages of one batch, as many as the edge lets through.
const BATCH: usize = 50;

/// A bus that notes how long its messages are.
#[derive(Default)]
struct Recorded {
    bus: MemoryBus,
    lengths: Mutex<Vec<usize>>,
}

#[async_trait]
impl Bus for Recorded {
    async fn tell(&self, gateway: OwnerId, message: Bytes) -> Result<(), BusError> {
        self.lengths.lock().push(message.len());
        self.bus.tell(gateway, message).await
    }

    fn listen(&self, gateway: OwnerId) -> BoxStream<'static, BusEvent<Bytes>> {
        self.bus.listen(gateway)
    }
}

/// Two gateways that share a bus, of which the first one hears.
async fn two() -> (Fixture, Fixture, Arc<Recorded>) {
    let bus = Arc::new(Recorded::default());
    let shared = Shared {
        directory: Arc::new(MemoryDirectory::default()),
        bus: bus.clone(),
        inbox: Arc::new(MemoryInbox::default()),
        followers: Arc::new(MemoryFollowers::default()),
        outbox: Arc::new(MemoryOutbox::default()),
        event_bytes: EVENT_BYTES,
        answers: Arc::new(MemoryAnswers::default()),
        briefs: Arc::new(MemoryBriefs::default()),
    };
    let base = Fixture::new();
    let gateway = || base.with_stores(snapshot(), |stores| stores.shared = Some(shared.clone()));
    let (first, second) = (gateway(), gateway());
    tokio::spawn(elsewhere::listen(Arc::downgrade(&first.gateway.replica)));
    tokio::task::yield_now().await;
    (first, second, bus)
}

fn batch(message: &Value) -> Value {
    Value::Array(vec![message.clone(); BATCH])
}

/// The first answer that is no acceptance of such a batch.
async fn refused(client: &Legacy, message: &Value) -> Answer {
    for _ in 0..100 {
        let answer = client.post(&batch(message)).await;
        if answer.status != StatusCode::ACCEPTED {
            return answer;
        }
    }
    panic!("{} messages were taken", 100 * BATCH);
}

#[tokio::test(start_paused = true)]
async fn a_user_who_sends_too_many_answers_or_cancels_is_told_when_to_send_them_again() {
    let answer = json!({"jsonrpc": "2.0", "id": "of nothing", "result": {}});
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 77}});
    for message in [answer, cancel] {
        let fixture = Fixture::new();
        let client = Legacy::connect(&fixture, "demo", "alice", "2025-03-26", json!({})).await;
        let other = Legacy::connect(&fixture, "demo", "alice", "2025-11-25", json!({})).await;
        let refused = refused(&client, &message).await;
        assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(refused.reason(), "rate_limited");
        assert!(refused.headers["retry-after"].to_str().unwrap().parse::<u64>().unwrap() >= 1);
        assert!(refused.json().get("id").is_none(), "{}", refused.text);
        let bob = Legacy::connect(&fixture, "demo", "bob", "2025-11-25", json!({})).await;
        assert_eq!(bob.post(&message).await.status, StatusCode::ACCEPTED, "another user");
        let ping = other.request(2, "ping", json!({})).await;
        assert_eq!(ping.status, StatusCode::OK, "requests are counted by the limits on them");
        let noted = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        assert_eq!(client.post(&batch(&noted)).await.status, StatusCode::ACCEPTED, "what makes no work");
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_batch_was_not_begun() {
    let fixture = Fixture::new();
    let client = Legacy::connect(&fixture, "demo", "alice", "2025-03-26", json!({})).await;
    let answer = json!({"jsonrpc": "2.0", "id": "of nothing", "result": {}});
    refused(&client, &answer).await;
    let mut with_a_call = vec![answer.clone(); BATCH - 1];
    with_a_call.push(json!({"jsonrpc": "2.0", "id": 3, "method": "tools/call",
                            "params": {"name": "echo", "arguments": {"message": "once"}}}));
    fixture.gateway.flush().await;
    let before = fixture.audit.events().len();
    // What came back meanwhile is taken.
    while client.post(&answer).await.status == StatusCode::ACCEPTED {}
    let refused = client.post(&Value::Array(with_a_call)).await;
    assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS, "{}", refused.text);
    fixture.gateway.flush().await;
    assert_eq!(fixture.audit.events().len(), before);
}

#[tokio::test]
async fn other_gateways_get_what_may_be_of_something_there_and_no_more() {
    let (first, second, bus) = two().await;
    let client = Legacy::connect(&first, "demo", "alice", "2025-11-25", json!({})).await;
    let there = Legacy { fixture: second, ..client };
    let pong = json!({"jsonrpc": "2.0", "id": "ping.0123456789abcdef", "result": {}});
    let made_up = "0198c5a0-0000-7000-8000-000000000000.name.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
    let forged = json!({"jsonrpc": "2.0", "id": made_up, "result": {"text": "x".repeat(100_000)}});
    for message in [pong, forged] {
        assert_eq!(there.post(&message).await.status, StatusCode::ACCEPTED);
    }
    assert!(bus.lengths.lock().is_empty(), "no gateway asked for these");
    let params = json!({"requestId": 4, "reason": "x".repeat(100_000)});
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params});
    assert_eq!(there.post(&cancel).await.status, StatusCode::ACCEPTED);
    let lengths = bus.lengths.lock().clone();
    assert!(lengths.len() == 1 && lengths[0] < 1_000, "{lengths:?}");
}

#[tokio::test]
async fn an_answer_to_a_question_is_passed_on_to_the_gateway_that_asked() {
    let (first, second, _) = two().await;
    let can = json!({"elicitation": {}});
    let client = Legacy::connect(&first, "policy", "alice", "2025-06-18", can).await;
    let call = json!({"jsonrpc": "2.0", "id": 9, "method": "tools/call",
                      "params": {"name": "policy.wipe", "arguments": {"message": "gone"}}});
    let mut body = client.open(&call).await.into_body();
    let event = body.frame().await.unwrap().unwrap().into_data().unwrap();
    let text = String::from_utf8(event.to_vec()).unwrap();
    let data = text.lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
    let asked: Value = serde_json::from_str(data).unwrap();
    assert_eq!(asked["method"], "elicitation/create");
    let there = Legacy { fixture: second, ..client };
    let approved = json!({"action": "accept", "content": {"approve": true}});
    let answer = json!({"jsonrpc": "2.0", "id": asked["id"], "result": approved});
    assert_eq!(there.post(&answer).await.status, StatusCode::ACCEPTED);
    let rest = body.collect().await.unwrap().to_bytes();
    assert!(String::from_utf8_lossy(&rest).contains(r#""message":"gone""#));
}
