//! Tests of every kind of JSON value (I-14): what a handler of each language receives, as docs/plugins.md describes,
//! and that a stdio server gets and sends the text unchanged.

use asp_json::kinds;
use serde_json::json;

use super::harness::{Said, Stack, compile_java, output, start_shims};
use super::languages::plugin;
use super::lines;

const PYTHON: &str = r#"
from asp_plugin import plugin

@plugin.tool
async def run(args, ctx):
    value = args["value"]
    text = ascii(value)
    return {"got": f"{type(value).__name__} {len(value) if len(text) > 200 else text}"}
"#;

const NODE: &str = r#"
import { tool } from '@asp/plugin';
export default tool(async (args) => {
  const text = JSON.stringify(args.value);
  return { got: `${typeof args.value} ${text.length > 200 ? args.value.length : text}` };
});
"#;

const JAVA: &str = r#"
import asp.plugin.Arguments;
import asp.plugin.Context;
import asp.plugin.Tool;
import java.math.BigDecimal;
import java.util.Map;

public final class Kinds implements Tool {
    @Override
    public Object run(Arguments arguments, Context context) {
        Object value = arguments.get("value", Object.class);
        String text = value.toString();
        if (value instanceof Double) {
            text += ", BigDecimal " + arguments.get("value", BigDecimal.class);
        }
        StringBuilder ascii = new StringBuilder();
        text.chars().forEach(c -> ascii.append(c < 127 ? "" + (char) c : String.format("\\u%04x", c)));
        String shown = text.length() > 200 ? "" + text.length() : ascii.toString();
        return Map.of("got", value.getClass().getSimpleName() + " " + shown);
    }
}
"#;

/// The kinds of [`kinds::KINDS`] in their order, and what Python, Node and Java make of each; a code if the call fails.
const RECEIVED: [(&str, [&str; 3]); 12] = [
    (
        "a 128-bit integer",
        [
            "int 340282366920938463463374607431768211455",
            "number 3.402823669209385e+38",
            "BigInteger 340282366920938463463374607431768211455",
        ],
    ),
    (
        "a negative 128-bit integer",
        [
            "int -170141183460469231731687303715884105728",
            "number -1.7014118346046923e+38",
            "BigInteger -170141183460469231731687303715884105728",
        ],
    ),
    (
        "an integer between two doubles",
        ["int 9007199254740993", "number 9007199254740992", "Long 9007199254740993"],
    ),
    (
        "a decimal of 30 digits",
        [
            "float 0.12345678901234568",
            "number 0.12345678901234568",
            "Double 0.12345678901234568, BigDecimal 0.123456789012345678901234567890",
        ],
    ),
    ("an integer written with an exponent", ["float 100.0", "number 100", "Double 100.0, BigDecimal 1E+2"]),
    ("a decimal with a final zero", ["float 1.5", "number 1.5", "Double 1.5, BigDecimal 1.50"]),
    ("a lone surrogate", [r"str 'cut \ud800'", r#"string "cut \ud800""#, r"String cut \ud800"]),
    (
        "surrogates in the wrong order",
        [r"str '\udc00\ud800'", r#"string "\udc00\ud800""#, r"String \udc00\ud800"],
    ),
    (
        "keys of lone surrogates",
        [r"dict {'\ud83d': 1, '\ud83e': 2}", r#"object {"\ud83d":1,"\ud83e":2}"#, "INVALID_ARGUMENT"],
    ),
    (
        "keys equal after unescaping",
        ["dict {'a': [{'x': 3}]}", r#"object {"a":[{"x":3}]}"#, "INVALID_ARGUMENT"],
    ),
    ("escapes that need not be", [r"str '\xe4/A'", r#"string "ä/A""#, r"String \u00e4/A"]),
    (
        "white space between tokens",
        ["dict {'a': [1, 2]}", r#"object {"a":[1,2]}"#, "LinkedHashMap {a=[1, 2]}"],
    ),
];

/// Returns what the handler received, or the code with which the call fails.
async fn received(stack: &Stack, request_id: &str, arguments: &str) -> String {
    let said = stack.call_text("kinds", request_id, arguments).await;
    if let Some(code) = said.iter().find_map(Said::failed) {
        return code.to_owned();
    }
    let answer = output(&said).unwrap_or_else(|| panic!("{said:.500?}"));
    answer["got"].as_str().unwrap().to_owned()
}

/// Calls the plugin with every kind, and with a string of 900 KiB, whose type in the language is `string`.
async fn receives(stack: &Stack, column: usize, string: &str) {
    for (place, (kind, (name, expected))) in kinds::KINDS.iter().zip(RECEIVED).enumerate() {
        assert_eq!(kind.name, name);
        let arguments = format!(r#"{{"value":{}}}"#, kind.text);
        assert_eq!(received(stack, &format!("r{place}"), &arguments).await, expected[column], "{name}");
    }
    let long = received(stack, "long", &kinds::long(900 << 10)).await;
    assert_eq!(long, format!("{string} {}", (900 << 10) + 1));
    assert_eq!(stack.figure("kinds@1.0.0", "crashes").await, 0);
}

#[tokio::test]
async fn python_receives_every_kind_as_documented() {
    let stack = start_shims(&[("kinds", plugin("python", "kinds.py"), PYTHON)]).await;
    receives(&stack, 0, "str").await;
}

#[tokio::test]
async fn node_receives_every_kind_as_documented() {
    let stack = start_shims(&[("kinds", plugin("node", "kinds.mjs"), NODE)]).await;
    receives(&stack, 1, "string").await;
}

#[tokio::test]
async fn java_receives_every_kind_as_documented() {
    let stack = start_shims(&[("kinds", plugin("java", "Kinds"), JAVA)]).await;
    compile_java(&stack, "kinds", "Kinds");
    receives(&stack, 2, "String").await;
}

/// Returns the arguments as the server received them, and the structured content of its answer.
async fn verbatim(stack: &Stack, request_id: &str, arguments: &str) -> (String, String) {
    let mut tunnel = stack.tunnel("verbatim").await;
    tunnel.tool(request_id, "verbatim", arguments).await;
    let said = tunnel.rest().await;
    let result = said.iter().find_map(lines::result).unwrap_or_else(|| panic!("{said:.500?}"));
    let blocks = result.member("content").unwrap().elements().unwrap();
    assert_eq!(blocks[1].text(), r#"{"type":"text","text":"cut \ud800"}"#);
    let came = blocks[0].view()["text"].as_str().unwrap().to_owned();
    (came, said.iter().find_map(Said::output_text).unwrap())
}

#[tokio::test]
async fn a_stdio_server_gets_and_gives_every_kind_as_it_was_written() {
    let manifest = json!({
        "mode": "mcp-stdio", "language": null, "command": ["python", "verbatim.py"],
        "entrypoint": "verbatim.py",
    });
    let server = include_str!("../../../../tests/services/verbatim.py");
    let stack = start_shims(&[("verbatim", manifest, server)]).await;
    let mut all: Vec<String> = kinds::KINDS.iter().map(kinds::Kind::object).collect();
    all.extend([kinds::all(), kinds::long(900 << 10)]);
    for (place, arguments) in all.iter().enumerate() {
        let (came, structured) = verbatim(&stack, &format!("r{place}"), arguments).await;
        assert!(came == *arguments, "{came:.500} is not {arguments:.500}");
        assert!(structured == *arguments, "{structured:.500} is not {arguments:.500}");
    }
    let large = format!(r#"{{"large":{}}}"#, 4 << 20);
    let (came, structured) = verbatim(&stack, "large", &large).await;
    assert_eq!(came, large);
    assert!(structured == kinds::long(4 << 20), "{} bytes: {structured:.100}", structured.len());
    assert_eq!(stack.figure("verbatim@1.0.0", "crashes").await, 0);
}
