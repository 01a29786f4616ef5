//! Plugins of each language that do harm to themselves: they are held or die, and another plugin's calls go on (I-7).
//! How soon they die is what `make chaos` asserts.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::json;

use super::account;
use super::attempts::{Language, start};
use super::death::descendants;
use super::harness::{Said, Stack, crash, eventually, output};

/// Of a call that does not end by itself.
const DEADLINE: Duration = Duration::from_millis(1500);
/// Processes below the runtime when only the good plugin's worker is left, with room for one that is being ended.
const FEW: usize = 12;

const MEMORY: &str = "memory";
/// What a language says to a program that is refused memory.
const REFUSED: [&str; 2] = ["MemoryError", "allocation failed"];
/// What a plugin does to itself, and how its call may end: by these causes of a crash, or cancelled, or done.
const HARM: [(&str, &[&str]); 7] = [
    ("exit", &["exit"]),
    ("crash", &["signal"]),
    (MEMORY, &[]),
    ("busy", &["deadline", "wedged"]),
    ("ignore", &["deadline"]),
    ("forks", &["deadline", "wedged", "cancelled", "oom"]),
    // As fast as it can for as long as the deadline: held to its rate, or ended.
    ("logs", &["done", "deadline", "wedged", "cancelled"]),
];

#[tokio::test]
async fn a_python_plugin_harms_nobody_but_itself() {
    let stack = harms_nobody(Language::Python).await;
    stack.log_line("Fatal Python error: Segmentation fault").await;
}

#[tokio::test]
async fn a_node_plugin_harms_nobody_but_itself() {
    harms_nobody(Language::Node).await;
}

#[tokio::test]
async fn a_java_plugin_harms_nobody_but_itself() {
    let stack = harms_nobody(Language::Java).await;
    stack.log_line("the plugin ended the process; this counts as a crash").await;
}

/// Without a control group too, where the last look at a worker may be older than its end by its own bound on the heap, or
/// the kernel has refused it memory before the first: its call fails, and it goes on.
#[tokio::test]
async fn the_plugins_of_an_ordinary_account_harm_nobody_but_themselves() {
    for language in [Language::Python, Language::Node, Language::Java] {
        let home = account::home();
        account::python(home.path());
        install(language, &home.path().join("plugins"));
        goes_on_beside_harm(account::start(home, &[], &[]).await, &["oom", "refused"]).await;
    }
}

fn install(language: Language, plugins: &Path) {
    // Of another language than the two that take longest to start; its calls must not wait for anything.
    Language::Python.install(plugins, "good", &json!({"pool": {"concurrency": 4}}));
    for (harm, _) in HARM {
        // What is computed in vain is bounded by the manifest; the machine has other tests to run.
        language.install(plugins, harm, &json!({"limits": {"cpuMillis": 500}}));
    }
}

async fn harms_nobody(language: Language) -> Stack {
    let stack = start(|plugins| install(language, plugins), |command| command).await;
    goes_on_beside_harm(stack, &["oom"]).await
}

/// `memory` is how the plugin that takes all memory may end.
async fn goes_on_beside_harm(stack: Stack, memory: &[&str]) -> Stack {
    let names = json!({"names": true});
    assert!(output(&stack.call("good", "first", &names).await).is_some());
    let over = AtomicBool::new(false);
    let good = async {
        let mut calls = 0_u32;
        while !over.load(Ordering::Relaxed) {
            let said = stack.call("good", &format!("good-{calls}"), &names).await;
            assert!(output(&said).is_some(), "another plugin's call failed: {said:?}");
            calls += 1;
        }
        calls
    };
    let harm = async {
        // In two rounds: seven processes that start at once are a load of their own.
        for round in HARM.chunks(4) {
            let calls = round.iter().map(|(harm, ends)| {
                let ends = if *harm == MEMORY { memory } else { *ends };
                ends_by(&stack, harm, ends)
            });
            futures::future::join_all(calls).await;
        }
        over.store(true, Ordering::Relaxed);
    };
    let (calls, ()) = futures::future::join(good, harm).await;
    assert!(calls > 20, "only {calls} calls went on beside it");
    assert_eq!(stack.figure("good@1.0.0", "crashes").await, 0);
    eventually("what they started is gone", || async { descendants(stack.child.id()).len() <= FEW }).await;
    stack
}

/// Runs one harmful call to its end.
async fn ends_by(stack: &Stack, harm: &str, ends: &[&str]) {
    let mut tunnel = stack.tunnel(harm).await;
    tunnel.until_event(asp_proto::supervisor::tunnel_event::Type::TunnelReady).await;
    let ends_itself = ["exit", "crash", MEMORY].contains(&harm);
    let deadline = (!ends_itself).then_some(DEADLINE);
    tunnel.invoke_until(harm, &json!({ "harm": harm }), deadline).await;
    let said = tunnel.rest().await;
    let cancelled = said.iter().any(|said| matches!(said.failed(), Some("CANCELLED" | "DEADLINE")));
    let end = match crash(&said) {
        Some((cause, _)) => cause,
        None if cancelled => "cancelled".to_owned(),
        None if output(&said).is_some() => "done".to_owned(),
        None if REFUSED.iter().any(|words| format!("{said:?}").contains(words)) => "refused".to_owned(),
        None => format!("{said:?}"),
    };
    assert!(ends.contains(&end.as_str()), "{harm}: {end}: {said:?}");
    // What a process said just before it ended itself may not have left it.
    let begun = ["exit", "crash"].contains(&harm) || said.iter().any(|said| matches!(said, Said::Message(_)));
    assert!(begun, "{harm}: it had begun: {said:?}");
}
