//! Tests of plugins that take every process and thread their worker may have: the session continues, other calls of the
//! same worker end normally, and the worker serves as before once there is capacity again. From Node 22.15 on, its
//! permissions let a plugin start neither processes nor threads.

use asp_proto::plugin::server_message::Payload as Out;
use serde_json::json;

use super::attempts::{Language, PIDS, start};
use super::harness::{Said, output};
use super::stats::{listen, next};

#[tokio::test]
async fn a_python_plugin_that_takes_all_processes_keeps_its_session() {
    keeps_its_session(Language::Python).await;
}

#[tokio::test]
async fn a_java_plugin_that_takes_all_processes_and_threads_keeps_its_session() {
    keeps_its_session(Language::Java).await;
}

async fn keeps_its_session(language: Language) {
    let manifest = json!({"pool": {"max": 1, "concurrency": 2}, "elicitations": ["room"]});
    let stack = start(|plugins| language.install(plugins, "crowd", &manifest), |command| command).await;
    let mut first = stack.tunnel("crowd").await;
    first.invoke("first", &json!({"crowd": true})).await;
    let asked = first.until_message().await;
    assert!(matches!(asked, Said::Message(Out::Elicitation(_))), "{asked:?}");

    // Answered or refused, depending on capacity.
    let names = json!({"names": true});
    let beside = stack.call("crowd", "beside", &names).await;
    let refused = beside.iter().any(|said| said.failed() == Some("OVERLOADED"));
    assert!(output(&beside).is_some() || refused, "{beside:?}");

    // The worker started with its call, so it was usually full when it was first queried.
    let mut samples = listen(&stack, "worker_sample").await;
    loop {
        let (event, figures) = next(&mut samples).await;
        if event.name == "worker_sample" && figures.get("gc_count").is_some() {
            break;
        }
    }

    first.answer("first", "room", &json!({})).await;
    let said = first.rest().await;
    let started = output(&said).unwrap_or_else(|| panic!("{said:?}"))["started"].as_u64();
    assert!((1..=PIDS).contains(&started.unwrap()), "{started:?}");
    // A waiting call takes no other call's thread.
    let mut waiting = stack.tunnel("crowd").await;
    waiting.invoke("waiting", &json!({"ask": true})).await;
    let asked = waiting.until_message().await;
    assert!(matches!(asked, Said::Message(Out::Elicitation(_))), "{asked:?}");
    assert!(output(&stack.call("crowd", "after", &names).await).is_some());
    waiting.answer("waiting", "room", &json!({})).await;
    assert!(output(&waiting.rest().await).is_some());
    assert_eq!(stack.figure("crowd@1.0.0", "crashes").await, 0);
}
