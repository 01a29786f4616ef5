//! Tests of plugins of each language that harm themselves: they are limited or die, and another plugin's calls continue
//! (I-7). `make chaos` checks how soon they die.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::json;

use super::account;
use super::attempts::{Language, start};
use super::death::descendants;
use super::harness::{Said, Stack, crash, eventually, output};

/// Deadline of a call that does not end by itself.
const DEADLINE: Duration = Duration::from_millis(1500);
/// Number of processes below the runtime when only the good plugin's worker is left, with some more that are being
/// ended.
const FEW: usize = 12;

const MEMORY: &str = "memory";
/// Messages of the languages when a program is refused memory.
const REFUSED: [&str; 2] = ["MemoryError", "allocation failed"];
/// Kinds of harm, and how the call may end: by these causes of a crash, cancelled, or successfully.
const HARM: [(&str, &[&str]); 7] = [
    ("exit", &["exit"]),
    ("crash", &["signal"]),
    (MEMORY, &[]),
    ("busy", &["deadline", "wedged"]),
    ("ignore", &["deadline"]),
    ("forks", &["deadline", "wedged", "cancelled", "oom"]),
    // As fast as it can until the deadline: limited to its rate, or ended.
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

/// Without a control group too. The last sample of a worker may be older than its end at its own heap limit, or the
/// kernel may have refused it memory before the first one: then its call fails, and the worker continues.
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
    // A different language than the two that take longest to start; its calls must not wait for anything.
    Language::Python.install(plugins, "good", &json!({"pool": {"concurrency": 4}}));
    for (harm, _) in HARM {
        // The manifest limits the useless computation; the machine has other tests to run.
        language.install(plugins, harm, &json!({"limits": {"cpuMillis": 500}}));
    }
}

async fn harms_nobody(language: Language) -> Stack {
    let stack = start(|plugins| install(language, plugins), |command| command).await;
    goes_on_beside_harm(stack, &["oom"]).await
}

/// Runs the harmful plugins next to a good one. `memory`: how the plugin that takes all memory may end.
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
    // Output that a process wrote just before it ended itself may be lost.
    let begun = ["exit", "crash"].contains(&harm) || said.iter().any(|said| matches!(said, Said::Message(_)));
    assert!(begun, "{harm}: it had begun: {said:?}");
}
