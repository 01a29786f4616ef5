//! A late reader sees the questions of a call and their answers.

use serde_json::{Value, json};

use super::{Rest, with_plugins};
use crate::plugin::{asks_name, user_input};
use crate::runtime::{Runtime, Script, Worker};

#[tokio::test]
async fn a_late_look_shows_the_questions_and_their_answers_until_the_end() {
    let runtime = Runtime::start(Script::of(|_, mut worker: Worker| async move {
        let invoke = worker.begin(&[]).await;
        for _ in 0..3 {
            worker.say(asks_name(&invoke.request_id)).await;
            user_input(&mut worker).await;
        }
        worker.complete(&invoke, &json!({"ok": true})).await;
    }));
    let fixture = with_plugins(&runtime);
    let call = Rest::at(&fixture, "/plugins/rest/tools/sweep/calls/1").with("prefer", "wait=20");
    let first = call.put(&json!({})).await.json();
    assert_eq!(first["history"], Value::Null, "{first}");
    let named = json!({"action": "accept", "content": {"name": "Ada"}});
    let second = call.advance(&json!({"result": named, "serverData": first["serverData"]})).await.json();
    let declined = json!({"action": "decline"});
    call.advance(&json!({"result": declined, "serverData": second["serverData"]})).await;
    let late = call.get().await.json();
    assert_eq!(late["status"], "awaitingElicitationResult", "{late}");
    let turns = late["history"].as_array().unwrap();
    let said: Vec<_> = turns.iter().map(|turn| (&turn["serverData"], &turn["result"])).collect();
    assert_eq!(said, [(&first["serverData"], &named), (&second["serverData"], &declined)], "{late}");
    assert!(turns.iter().all(|turn| turn["elicitationRequest"] == first["elicitationRequest"]), "{late}");
    assert!(turns.iter().all(|turn| turn["answeredAt"].as_str() >= first["createdAt"].as_str()), "{late}");
    let done = call.advance(&json!({"result": declined, "serverData": late["serverData"]})).await.json();
    assert_eq!((&done["status"], &done["history"]), (&json!("success"), &Value::Null), "{done}");
}
