//! Official clients that know nothing of the company's login: through the server's own front where nobody may register,
//! and at the issuer itself where everybody may.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use asp_e2e::browser::{Browser, Person};
use asp_e2e::port::Reserved;
use asp_e2e::tool;
use futures::future::join_all;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::Command;

use super::{ALICE, Company, realm};
use crate::clients::node_program;

/// Hang guard of a client that logs in twice and waits for its token to end.
const CLIENT: Duration = Duration::from_secs(150);
/// Where clients are sent back to; nobody listens there, the test reads the address.
const REDIRECT: &str = "http://127.0.0.1:9/";
/// Has not the role at first that the scope `notes:write` wants.
const BOB: Person<'static> = Person { user: "bob", password: "wonderland", allows: true };

/// One client's run.
struct Run {
    name: &'static str,
    command: Command,
    person: &'static Person<'static>,
}

pub(super) async fn log_in(company: &Company) -> Result<()> {
    let (notes, memos) = (company.stack.mcp_url("notes"), company.stack.mcp_url("memos"));
    let run = |name, command, person| Run { name, command, person };
    let runs = [
        run("python 2, modern", python(tool::python()?, &[&notes, "2026-07-28"])?, &ALICE),
        run("python 2, legacy", python(tool::python()?, &[&notes, "legacy"])?, &ALICE),
        run("python 1", python(tool::python_1()?, &[&notes])?, &ALICE),
        run("node 2, modern", node("node-v2", &[&notes, "2026-07-28"])?, &ALICE),
        run("node 2, legacy", node("node-v2", &[&notes, "legacy"])?, &ALICE),
        run("node 1", node("node-v1", &[&notes])?, &ALICE),
        run("node 2, registered at the issuer", node("node-v2", &[&memos, "2026-07-28"])?, &ALICE),
        // This one asks for every scope that the issuer lists, and is given what its user may have.
        run("python 2, registered at the issuer", python(tool::python()?, &[&memos, "2026-07-28"])?, &BOB),
    ];
    let all = join_all(runs.map(|run| async move { (run.name, client(company, run).await) }));
    for (name, outcome) in all.await {
        let said = outcome.with_context(|| name)?;
        assert_eq!(said["results"].as_array().map(Vec::len), Some(3), "{name}: {said}");
        assert_eq!(said["logins"], 2, "{name}: once, and once for the scope: {said}");
        assert!(said["refreshed"].as_u64() >= Some(1), "{name}: {said}");
        assert!(said["scope"].as_str().is_some_and(|scope| scope.contains("notes:write")), "{name}: {said}");
    }
    company.keycloak.change_client("mcp", "access.token.lifespan", "300").await?;
    inspect(&notes).await.context("inspector")
}

fn python(interpreter: PathBuf, arguments: &[&str]) -> Result<Command> {
    let mut command = Command::new(interpreter);
    command.arg(tool::root()?.join("tests/clients/python/login.py")).args(arguments);
    Ok(command)
}

fn node(folder: &str, arguments: &[&str]) -> Result<Command> {
    let mut command = Command::new(tool::node()?);
    let program = tool::clients()?.join(folder).join("login.mjs");
    command.arg("--preserve-symlinks-main").arg(program).args(arguments);
    Ok(command)
}

/// Runs a client; whenever it wants its user to log in, he does. Returns what it printed last.
async fn client(company: &Company, run: Run) -> Result<Value> {
    let Run { mut command, person, .. } = run;
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn()?;
    let mut input = child.stdin.take().context("its input")?;
    let mut lines = BufReader::new(child.stdout.take().context("its output")?).lines();
    let mut errors = child.stderr.take().context("its errors")?;
    let work = async {
        let mut last = String::new();
        let mut logins = 0;
        // One person, one browser: the second login of a client finds the first one's session.
        let mut browser = Browser::default();
        while let Some(line) = lines.next_line().await? {
            match line.strip_prefix("LOGIN ") {
                Some(url) => {
                    logins += 1;
                    if logins == 2 && person.user == BOB.user {
                        company.keycloak.grant(realm::OPEN, BOB.user, "writers").await?;
                    }
                    let back = browser.visit(url, person, REDIRECT).await?;
                    input.write_all(format!("{back}\n").as_bytes()).await?;
                }
                None => last = line,
            }
        }
        Ok::<_, anyhow::Error>(last)
    };
    let worked = tokio::time::timeout(CLIENT, work).await.context("the client did not end")?;
    let mut said = String::new();
    errors.read_to_string(&mut said).await?;
    let last = worked.with_context(|| said.clone())?;
    serde_json::from_str(&last).with_context(|| format!("{last}\n{said}"))
}

/// The Inspector's command line registers and logs in, and goes on with what it has kept. It asks for no wider token: told
/// which scope a tool wants, it refreshes the one it has and stops ("auth() returned AUTHORIZED without authorization code").
async fn inspect(url: &str) -> Result<()> {
    let home = tempfile::tempdir()?;
    // It wants to be told a port, and its registration stays with that.
    let port = Reserved::of_server()?;
    let back = format!("http://{}/oauth/callback", port.address());
    let launcher = "inspector/node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js";
    for (more, wanted) in [(None, 1), (Some("--stored-auth-only"), 0)] {
        let mut command = node_program(launcher)?;
        command.args(["--cli", url, "--transport", "http", "--protocol-era", "modern", "--format", "json"]);
        command.args(["--callback-url", &back, "--method", "tools/call", "--tool-name", "hello"]);
        command.args(["--tool-args-json", r#"{"message":"from the Inspector"}"#]).args(more);
        command.env("HOME", home.path()).env("MCP_STORAGE_DIR", home.path());
        command.env("MCP_INSPECTOR_SECRET_STORE", "file");
        // It opens a browser where nobody sits at a terminal; ours is another one.
        command.env("MCP_AUTO_OPEN_ENABLED", "true").env("BROWSER", "true");
        let (said, logins) = with_login(command, &back).await.with_context(|| format!("{more:?}"))?;
        let answer: Value = serde_json::from_str(&said).with_context(|| said.clone())?;
        let result = answer.get("result").unwrap_or(&answer);
        ensure!(result["content"][0]["text"] == "from the Inspector", "{answer}");
        ensure!(logins == wanted, "{more:?}: {logins} logins");
    }
    Ok(())
}

/// Runs it; alice follows the links that it prints. What it printed, and how many links.
async fn with_login(mut command: Command, end: &str) -> Result<(String, usize)> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn()?;
    let mut output = child.stdout.take().context("its output")?;
    let mut errors = BufReader::new(child.stderr.take().context("its errors")?).lines();
    let mut told = String::new();
    let mut browser = Browser::default();
    let work = async {
        let mut logins = 0;
        while let Some(line) = errors.next_line().await? {
            told.push_str(&line);
            told.push('\n');
            if let Some((_, url)) = line.split_once("Please navigate to: ") {
                logins += 1;
                let back = browser.visit(url.trim(), &ALICE, end).await?;
                browser.ask("GET", &back, None).await?;
            }
        }
        let mut said = String::new();
        output.read_to_string(&mut said).await?;
        Ok::<_, anyhow::Error>((said, logins))
    };
    let worked = tokio::time::timeout(CLIENT, work).await.context("it did not end")?;
    let (said, logins) = worked.with_context(|| told.clone())?;
    let ended = child.wait().await?;
    ensure!(ended.success(), "{ended}: {said}\n{told}");
    Ok((said, logins))
}
