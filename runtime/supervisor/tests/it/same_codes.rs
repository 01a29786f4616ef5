//! Tests that the same event ends a call in the same way in every language: the code, the details, and the message to
//! the caller for a failure that the plugin did not expect.

use std::time::Duration;

use asp_proto::plugin::client_message::Payload as In;
use asp_proto::plugin::deliver_user_input::Action;
use asp_proto::plugin::server_message::Payload as Out;
use asp_proto::plugin::{DeliverDelegationResult, DeliverUserInput};
use serde_json::{Value, json};

use super::harness::{Said, Stack, compile_java, start_shims};

const PYTHON: &str = r#"
import asyncio
import urllib.request
from asp_plugin import PluginError, Result, plugin

@plugin.tool
async def odd(args, ctx):
    what = args["what"]
    if what == "raises":
        raise ValueError("a secret")
    if what == "own":
        raise PluginError("QUOTA", "used up", {"left": 0})
    if what == "tool error":
        return Result(content=[{"type": "text", "text": "no such city"}], is_error=True)
    if what == "output":
        return {"ok": "yes"}
    if what == "sleeps":
        await asyncio.sleep(60)
    if what == "egress":
        urllib.request.urlopen("http://127.0.0.1:9/")
    if what == "asks":
        return {"ok": (await ctx.elicit("who")).action == "accept"}
    if what == "asks nobody":
        await ctx.elicit("nobody")
    if what == "delegates":
        await ctx.delegate("model", {})
    if what == "delegates nowhere":
        await ctx.delegate("nowhere", {})
    return {"ok": True}
"#;

const NODE: &str = r#"
import { setTimeout } from 'node:timers/promises';
import { CallError, ToolError, tool } from '@asp/plugin';

export default tool(async ({ what }, ctx) => {
  if (what === 'raises') throw new TypeError('a secret');
  if (what === 'own') throw new CallError('QUOTA', 'used up', { details: { left: 0 } });
  if (what === 'tool error') throw new ToolError('no such city');
  if (what === 'output') return { ok: 'yes' };
  if (what === 'sleeps') await setTimeout(60_000, undefined, { signal: ctx.signal });
  if (what === 'egress') await fetch('http://127.0.0.1:9/');
  if (what === 'asks') return { ok: (await ctx.elicit('who')).action === 'accept' };
  if (what === 'asks nobody') await ctx.elicit('nobody');
  if (what === 'delegates') await ctx.delegate('model', {});
  if (what === 'delegates nowhere') await ctx.delegate('nowhere', {});
  return { ok: true };
});
"#;

const JAVA: &str = r#"
import asp.plugin.Arguments;
import asp.plugin.Context;
import asp.plugin.PluginException;
import asp.plugin.Tool;
import asp.plugin.ToolException;
import java.net.URI;
import java.time.Duration;
import java.util.Map;

public final class Odd implements Tool {
    private record Input(String what) {}

    @Override
    public Object run(Arguments arguments, Context context) throws Exception {
        switch (arguments.as(Input.class).what()) {
            case "raises" -> throw new IllegalStateException("a secret");
            case "own" -> throw new PluginException("QUOTA", "used up", Map.of("left", 0));
            case "tool error" -> throw new ToolException("no such city");
            case "output" -> {
                return Map.of("ok", "yes");
            }
            case "sleeps" -> Thread.sleep(60_000);
            case "egress" -> URI.create("http://127.0.0.1:9/").toURL().openStream();
            case "asks" -> {
                return Map.of("ok", context.elicit("who").action().toString().equalsIgnoreCase("accept"));
            }
            case "asks nobody" -> context.elicit("nobody");
            case "delegates" -> context.delegate("model", Map.of(), Duration.ofSeconds(60));
            case "delegates nowhere" -> context.delegate("nowhere", Map.of(), Duration.ofSeconds(60));
            default -> {}
        }
        return Map.of("ok", true);
    }
}
"#;

fn plugin(language: &str, entrypoint: &str) -> Value {
    json!({
        "language": language, "entrypoint": entrypoint,
        "inputSchema": {"type": "object", "required": ["what"], "properties": {"what": {"type": "string"}}},
        "outputSchema": {"type": "object", "required": ["ok"], "properties": {"ok": {"type": "boolean"}}},
        "elicitations": ["who"], "delegations": ["model"],
        "limits": {"memoryBytes": 268_435_456, "pids": 64},
    })
}

/// Event that happens to a call while it runs.
enum Meanwhile {
    Nothing,
    /// Its deadline passes after this time.
    Deadline(Duration),
    Cancel,
    /// Its question is answered with an action, or with the reason why there is no answer.
    Answer(Action, &'static str),
    /// Its delegation has no result.
    NoResult(&'static str),
}

async fn ends(stack: &Stack, what: Value, meanwhile: Meanwhile) -> Out {
    let mut tunnel = stack.tunnel("odd").await;
    let end = if let Meanwhile::Deadline(end) = meanwhile { Some(end) } else { None };
    tunnel.invoke_until("one", &json!({"what": what}), end).await;
    match meanwhile {
        Meanwhile::Nothing | Meanwhile::Deadline(_) => {}
        Meanwhile::Cancel => tunnel.cancel("one").await,
        Meanwhile::Answer(action, error) => {
            let asked = tunnel.until(|said| matches!(said, Said::Message(Out::Elicitation(_)))).await;
            let Said::Message(Out::Elicitation(asked)) = asked else { unreachable!() };
            let mut answer = DeliverUserInput { error: error.into(), ..DeliverUserInput::default() };
            answer.request_id = "one".into();
            answer.elicitation_id = asked.elicitation_id;
            answer.set_action(action);
            tunnel.say(In::UserInput(answer)).await;
        }
        Meanwhile::NoResult(error) => {
            let asked = tunnel.until(|said| matches!(said, Said::Message(Out::Delegation(_)))).await;
            let Said::Message(Out::Delegation(asked)) = asked else { unreachable!() };
            let mut result = DeliverDelegationResult { error: error.into(), ..Default::default() };
            result.request_id = "one".into();
            result.correlation_id = asked.correlation_id;
            tunnel.say(In::DelegationResult(result)).await;
        }
    }
    let said = tunnel.rest().await;
    let end = said.iter().find_map(|said| match said {
        Said::Message(end @ (Out::Completed(_) | Out::Failed(_))) => Some(end.clone()),
        _ => None,
    });
    end.unwrap_or_else(|| panic!("{said:?}"))
}

/// Returns the visible part of an end: the code and the details of a failure, or the contents of a result.
fn shape(end: Out) -> (String, Value) {
    let read = |json: Option<asp_proto::plugin::Json>| {
        json.filter(|json| !json.value.is_empty())
            .map_or(Value::Null, |json| serde_json::from_slice(&json.value).unwrap())
    };
    match end {
        Out::Failed(failed) => {
            assert!(!failed.message.contains("a secret"), "{}", failed.message);
            let said = match failed.code.as_str() {
                "INTERNAL" | "QUOTA" => failed.message.into(),
                // Each language has its own text for the same.
                _ => Value::Null,
            };
            (failed.code, json!({"details": read(failed.details), "said": said}))
        }
        Out::Completed(done) => {
            let shown = json!({"output": read(done.output), "content": read(done.content)});
            (if done.is_error { "a tool error" } else { "done" }.to_owned(), shown)
        }
        other => panic!("{other:?}"),
    }
}

async fn all_end_alike(stack: &Stack) {
    let failed = |details: Value, said: Value| json!({"details": details, "said": said});
    let plain = || failed(Value::Null, Value::Null);
    let at = |pointer: &str| failed(json!({"pointer": pointer}), Value::Null);
    let because = |reason: &str| failed(json!({"reason": reason}), Value::Null);
    let unexpected = || failed(Value::Null, "the plugin failed; its log says why".into());
    let done = |ok: bool| json!({"output": {"ok": ok}, "content": null});
    let text = json!([{"type": "text", "text": "no such city"}]);
    let in_vain = Meanwhile::Answer;
    let nothing = || Meanwhile::Nothing;
    let rows = [
        (json!("fine"), nothing(), "done", done(true)),
        (json!(7), nothing(), "INVALID_ARGUMENT", at("/what")),
        (json!("raises"), nothing(), "INTERNAL", unexpected()),
        (json!("own"), nothing(), "QUOTA", failed(json!({"left": 0}), "used up".into())),
        (json!("tool error"), nothing(), "a tool error", json!({"output": null, "content": text})),
        (json!("output"), nothing(), "INVALID_OUTPUT", at("/ok")),
        (json!("egress"), nothing(), "INTERNAL", unexpected()),
        (json!("sleeps"), Meanwhile::Deadline(Duration::from_secs(1)), "DEADLINE", plain()),
        (json!("sleeps"), Meanwhile::Cancel, "CANCELLED", plain()),
        (json!("asks"), in_vain(Action::Accept, ""), "done", done(true)),
        (json!("asks"), in_vain(Action::Decline, ""), "done", done(false)),
        (json!("asks"), in_vain(Action::Cancel, ""), "done", done(false)),
        (json!("asks"), in_vain(Action::Accept, "unsupported"), "INPUT_UNSUPPORTED", because("unsupported")),
        (json!("asks"), in_vain(Action::Accept, "expired"), "INPUT_EXPIRED", because("expired")),
        (json!("asks nobody"), nothing(), "UNDECLARED", because("undeclared")),
        (json!("delegates"), Meanwhile::NoResult("refused"), "DELEGATION_FAILED", because("refused")),
        (json!("delegates nowhere"), nothing(), "UNDECLARED", because("undeclared")),
    ];
    let mut wrong = Vec::new();
    for (what, meanwhile, code, shown) in rows {
        let found = shape(ends(stack, what.clone(), meanwhile).await);
        if found != (code.to_owned(), shown.clone()) {
            wrong.push(format!("{what}: {found:?}, not {code} {shown}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn python_ends_calls_as_every_language_does() {
    all_end_alike(&start_shims(&[("odd", plugin("python", "odd.py"), PYTHON)]).await).await;
}

#[tokio::test]
async fn node_ends_calls_as_every_language_does() {
    all_end_alike(&start_shims(&[("odd", plugin("node", "odd.mjs"), NODE)]).await).await;
}

#[tokio::test]
async fn java_ends_calls_as_every_language_does() {
    let stack = start_shims(&[("odd", plugin("java", "Odd"), JAVA)]).await;
    compile_java(&stack, "odd", "Odd");
    all_end_alike(&stack).await;
}
