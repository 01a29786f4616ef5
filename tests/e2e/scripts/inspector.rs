//! The script as the Inspector's command line can go it, one step a run: lists, calls, reads, prompts.

use anyhow::{Result, ensure};
use asp_e2e::stack::Stack;
use serde_json::{Value, json};

use super::check_lists;
use crate::clients::{Place, inspect};

pub(super) async fn script(stack: &Stack, era: &str) -> Result<()> {
    let url = stack.mcp_url("conformance");
    let place = Place { url: &url, token: "", tools: &[], environment: &[] };
    let run = |arguments: &'static [&'static str]| {
        let place = &place;
        async move {
            let answer = inspect(place, era, arguments).await?;
            anyhow::Ok(answer.get("result").unwrap_or(&answer).clone())
        }
    };
    let mut lists = json!({});
    for (method, list, member, key) in [
        (&["--method", "tools/list"], "tools", "tools", "name"),
        (&["--method", "prompts/list"], "prompts", "prompts", "name"),
        (&["--method", "resources/list"], "resources", "resources", "uri"),
        (&["--method", "resources/templates/list"], "resourceTemplates", "templates", "uriTemplate"),
    ] {
        let listed = run(method).await?;
        lists[member] = names(&listed[list], key);
    }
    check_lists(&lists)?;
    for (arguments, at, text) in [
        (
            &["--method", "tools/call", "--tool-name", "test_simple_text"] as &'static [&'static str],
            "/content/0/text",
            "This is a simple text response for testing.",
        ),
        (
            &[
                "--method",
                "prompts/get",
                "--prompt-name",
                "test_prompt_with_arguments",
                "--prompt-args",
                "arg1=a",
                "arg2=b",
            ],
            "/messages/0/content/text",
            "Prompt with arguments: arg1='a', arg2='b'",
        ),
        (
            &["--method", "resources/read", "--uri", "test://static-text"],
            "/contents/0/text",
            "This is the content of the static text resource.",
        ),
        (
            &["--method", "resources/read", "--uri", "test://template/7/data"],
            "/contents/0/text",
            r#"{"id": "7", "templateTest": true, "data": "Data for ID: 7"}"#,
        ),
    ] {
        let came = run(arguments).await?;
        ensure!(came.pointer(at) == Some(&json!(text)), "{arguments:?}: {came}");
    }
    Ok(())
}

fn names(list: &Value, key: &str) -> Value {
    list.as_array().into_iter().flatten().map(|entry| entry[key].clone()).collect()
}
