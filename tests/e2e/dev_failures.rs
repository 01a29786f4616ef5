//! Text that an author sees in `asp dev` when a plugin fails: cause, place and remedy.

use std::fs;

use anyhow::{Context, Result, ensure};
use asp_e2e::process::Process;
use asp_e2e::wait::ErrorDetails;
use serde_json::{Value, json};

use crate::clients::{self, Place};
use crate::dev::{Author, block, ready, said};
use crate::plugins::MODES;
use crate::trial::{Shared, trials};

trials! { dev_failures:
    an_exception_a_blocked_host_and_a_blocking_handler_are_shown_with_their_places,
    code_that_does_not_load_is_started_once_and_its_calls_learn_why,
}

/// The handler of `asp plugin new`, which does what it is called with.
const ACTS: &str = "import time
import urllib.request
from dataclasses import dataclass

from asp_plugin import Context, plugin


@dataclass
class Input:
    name: str


@dataclass
class Output:
    greeting: str


@plugin.tool
async def main(args: Input, ctx: Context) -> Output:
    if args.name == 'key':
        return {}['missing']
    if args.name == 'network':
        urllib.request.urlopen('http://example.org/')
    if args.name == 'block':
        time.sleep(60)
    return Output(f'Hello, {args.name}!')
";

async fn an_exception_a_blocked_host_and_a_blocking_handler_are_shown_with_their_places(
    _: &Shared,
) -> Result<()> {
    let author = Author::new()?;
    author.server("greet").await?;
    fs::write(author.root.join("greet/plugins/greet/main.py"), ACTS)?;
    let dev = author.dev(&["--port", "0"])?;
    ready(&dev).await?;
    let text = call(&dev, "key").await?;
    ensure!(text.contains("main.py:21: KeyError: 'missing'"), "the caller learns it: {text}");
    said(&dev, "call greet/greet by alice: tool error, ").await?;
    said(&dev, "main.py:21: KeyError: 'missing'").await?;
    let text = call(&dev, "network").await?;
    ensure!(text.contains("security.allowedDomains"), "{text}");
    call(&dev, "block").await?;
    said(&dev, "an async handler blocks its worker at main.py:25: time.sleep(60)").await?;
    said(&dev, "(the process ended: the worker did not answer; ").await
}

async fn code_that_does_not_load_is_started_once_and_its_calls_learn_why(_: &Shared) -> Result<()> {
    let author = Author::new()?;
    author.server("greet").await?;
    fs::write(author.root.join("greet/plugins/greet/main.py"), "TABLE = {}\nTABLE['missing']\n")?;
    let dev = author.dev(&["--port", "0"])?;
    ready(&dev).await?;
    let text = call(&dev, "Ada").await?;
    ensure!(text.contains("the plugin's code does not load"), "{text}");
    said(&dev, "greet | cannot load the plugin: import main.py: main.py:2: KeyError: 'missing'").await?;
    said(&dev, "greet |   File \"main.py\", line 2").await
}

/// Calls the tool by the official client; its answer as a text.
async fn call(dev: &Process, name: &str) -> Result<String> {
    let block = block(dev).context("the block of an mcp.json is printed")?;
    let entry = &block["mcpServers"]["greet"];
    let text = |value: &Value| value.as_str().map(str::to_owned).with_context(|| block.to_string());
    let url = text(&entry["url"])?;
    let authorization = text(&entry["headers"]["Authorization"])?;
    let token = authorization.strip_prefix("Bearer ").context("a bearer token")?;
    let place = Place { url: &url, token, tools: &[], environment: &[] };
    let (mode, _) = MODES[0];
    let answer = clients::python_calls(&place, mode, "greet", &json!({"name": name})).await;
    Ok(answer.with_details(|| dev.tail())?["result"].to_string())
}
