//! `asp dev` as an author uses it: one command in a folder, an unchanged client, edits that take effect, Ctrl-C.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use asp_e2e::process::Process;
use asp_e2e::{stack, tool, wait};
use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

use crate::clients::{self, Place};
use crate::plugins::MODES;
use crate::trial::{Shared, trials};

trials! { dev:
    edits_of_code_and_specs_take_effect_and_faults_change_nothing,
    it_begins_with_a_faulty_spec_and_serves_when_that_is_mended,
    a_plugin_that_does_not_load_stays_what_it_was_and_types_reach_clients,
    what_a_plugin_logs_is_shown_with_its_name_and_commands_no_terminal,
    an_interrupted_command_leaves_nothing_that_runs,
    maven_builds_where_somebody_has_said_yes_at_a_terminal,
    programs_read_json_alone_and_find_how_tokens_are_minted,
    what_is_not_accepted_changes_no_code,
    node_from_an_empty_folder_to_a_call_and_an_edit,
    java_from_an_empty_folder_to_a_call_and_an_edit,
    a_taken_port_and_a_folder_without_a_server_are_named_with_the_way_out,
}

/// A folder of specs and the command that serves it.
pub(crate) struct Author {
    pub(crate) work: TempDir,
    pub(crate) root: PathBuf,
}

impl Author {
    pub(crate) fn new() -> Result<Author> {
        let work = tempfile::tempdir()?;
        let root = work.path().join("mine");
        fs::create_dir_all(work.path().join("tmp"))?;
        Ok(Author { work, root })
    }

    /// Returns the command with the languages of this checkout.
    pub(crate) fn asp(&self) -> Result<Command> {
        // Whoever runs the tests may ignore SIGHUP (nohup), which children would inherit.
        let mut command = Command::new("env");
        command.arg("--default-signal=HUP").arg(tool::asp()?);
        command.env("TMPDIR", self.work.path().join("tmp")).env_remove("ASP_STATE_DIR");
        command.env("ASP_PLUGIN_PYTHON", tool::plugin_python()?).env("ASP_RUNTIME_BIN", tool::runtime()?);
        let (node, shim) = tool::plugin_node()?;
        command.env("ASP_PLUGIN_NODE", node).env("ASP_PLUGIN_NODE_SHIM", shim);
        let (java, shim) = tool::plugin_java()?;
        command
            .env("ASP_PLUGIN_JAVA", java)
            .env("ASP_PLUGIN_JAVA_SHIM", shim)
            .env("ASP_TRUST_BUILDS", "true");
        Ok(command)
    }

    /// `asp plugin new`: a server with one tool.
    pub(crate) async fn server(&self, id: &str) -> Result<()> {
        self.server_in("python", id).await
    }

    pub(crate) async fn server_in(&self, language: &str, id: &str) -> Result<()> {
        let mut command = self.asp()?;
        command.args(["plugin", "new", id, "--language", language]).arg(&self.root);
        let output = command.output().await?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    }

    pub(crate) fn dev(&self, arguments: &[&str]) -> Result<Process> {
        let mut command = self.asp()?;
        command.arg("dev").arg(&self.root).args(arguments);
        Process::start("asp dev", command)
    }

    /// Replaces a text in a file, as editors do that save by renaming.
    fn edit(&self, file: &str, from: &str, to: &str) -> Result<()> {
        let path = self.root.join(file);
        let text = fs::read_to_string(&path)?;
        ensure!(text.contains(from), "{file} has no `{from}`");
        let beside = path.with_file_name(".swap");
        fs::write(&beside, text.replace(from, to))?;
        Ok(fs::rename(beside, path)?)
    }
}

async fn edits_of_code_and_specs_take_effect_and_faults_change_nothing(_: &Shared) -> Result<()> {
    let author = Author::new()?;
    author.server("greet").await?;
    let mut dev = author.dev(&["--port", "0"])?;
    ready(&dev).await?;
    let block = block(&dev).context("the block of an mcp.json is printed")?;
    ensure!(block["mcpServers"]["greet"]["type"] == "http", "{block}");
    greets(&block, "greet", "Hello, Ada!").await?;
    said(&dev, "call greet/greet by alice: ok, ").await?;

    author.edit("greet/plugins/greet/main.py", "Hello,", "Welcome,")?;
    said(&dev, "applied: the code of greet").await?;
    greets(&block, "greet", "Welcome, Ada!").await?;

    author.edit("greet/greet.yaml", "type: tool", "type: tole")?;
    said(&dev, "fault: greet/greet.yaml:3: ").await?;
    said(&dev, "the previous specs and code stay").await?;
    greets(&block, "greet", "Welcome, Ada!").await?;
    author.edit("greet/greet.yaml", "type: tole", "type: tool")?;
    said(&dev, "applied: nothing changed").await?;

    author.server("second").await?;
    let second = wait::until("the second server is told", wait::START, || async {
        last_block(&dev).filter(|block| block["mcpServers"]["second"].is_object())
    });
    greets(&second.await?, "second", "Hello, Ada!").await?;
    fs::remove_dir_all(author.root.join("second"))?;
    said(&dev, "second is gone").await?;

    let descendants = descendants(dev.id().context("it runs")?);
    ensure!(!descendants.is_empty(), "the runtime is a child of it");
    dev.signal(Signal::INT)?;
    let status = dev.wait(wait::START).await?;
    ensure!(status.success(), "Ctrl-C ends it with 0: {status}\n{}", dev.tail());
    wait::until("every descendant is gone", wait::CONVERGE, || async {
        (!descendants.iter().any(|process| Path::new(&format!("/proc/{process}")).exists())).then_some(())
    })
    .await?;
    let left: Vec<_> =
        fs::read_dir(author.work.path().join("tmp"))?.flatten().map(|entry| entry.path()).collect();
    ensure!(left.is_empty(), "nothing is left: {left:?}");
    let faults = stack::faults(&[dev.log()], &[]);
    ensure!(faults.is_empty(), "errors in the log:\n{}", faults.join("\n"));
    Ok(())
}

async fn it_begins_with_a_faulty_spec_and_serves_when_that_is_mended(_: &Shared) -> Result<()> {
    let author = Author::new()?;
    author.server("greet").await?;
    author.edit("greet/greet.yaml", "type: tool", "type: tole")?;
    let mut dev = author.dev(&["--port", "0", "--json"])?;
    said(&dev, "nothing is served until this is mended").await?;
    author.edit("greet/greet.yaml", "type: tole", "type: tool")?;
    ready(&dev).await?;
    let line = || async { dev.output().lines().into_iter().find(|line| line.contains("mcpServers")) };
    let told = wait::until("a line for programs", wait::START, line).await.with_context(|| dev.tail())?;
    let told: Value = serde_json::from_str(&told)?;
    ensure!(told["url"].as_str().is_some_and(|url| url.starts_with("http://127.0.0.1:")), "{told}");
    greets(&told, "greet", "Hello, Ada!").await?;
    // As a terminal that closes.
    dev.signal(Signal::HUP)?;
    let status = dev.wait(wait::START).await?;
    ensure!(status.success(), "SIGHUP ends it in order: {status}\n{}", dev.tail());
    Ok(())
}

async fn a_plugin_that_does_not_load_stays_what_it_was_and_types_reach_clients(_: &Shared) -> Result<()> {
    let author = Author::new()?;
    author.server("greet").await?;
    let dev = author.dev(&["--port", "0"])?;
    ready(&dev).await?;
    let block = block(&dev).context("the block of an mcp.json is printed")?;
    let code = "greet/plugins/greet/main.py";
    let file = author.root.join("greet/greet.schema.json");
    let before = fs::read_to_string(&file)?;

    author.edit(code, "@dataclass", "@dataclass(")?;
    said(&dev, "fault: plugin greet: its code does not load: ").await?;
    said(&dev, "its code from before stays in force").await?;
    said(&dev, "greet | ").await?;
    said(&dev, "not applied: 1 fault; ").await?;
    greets(&block, "greet", "Hello, Ada!").await?;
    author.edit("greet/greet.yaml", "Greets someone", "Greets anybody")?;
    refused_times(&dev, 2).await?;
    ensure!(!dev.log().contains("applied: specs"), "specs changed without their code: {}", dev.tail());
    author.edit("greet/greet.yaml", "Greets anybody", "Greets someone")?;

    author.edit(code, "@dataclass(", "@dataclass")?;
    author.edit(code, "Hello,", "Welcome,")?;
    said(&dev, "applied: the code of greet").await?;
    ensure!(fs::read_to_string(&file)? == before, "a file that is what the code says is not written");
    author.edit(code, "    name: str\n", "    name: str\n    polite: bool = False\n")?;
    said(&dev, "greet.schema.json").await?;
    ensure!(fs::read_to_string(&file)?.contains("polite"), "{}", fs::read_to_string(&file)?);
    greets(&block, "greet", "Welcome, Ada!").await
}

async fn what_a_plugin_logs_is_shown_with_its_name_and_commands_no_terminal(_: &Shared) -> Result<()> {
    let author = Author::new()?;
    author.server("greet").await?;
    let call = "    await ctx.log(\"warn\", \"found\\n\\x1b[2Jother | words\")\n    return";
    author.edit("greet/plugins/greet/main.py", "    return", call)?;
    let dev = author.dev(&["--port", "0"])?;
    ready(&dev).await?;
    let block = block(&dev).context("the block of an mcp.json is printed")?;
    greets(&block, "greet", "Hello, Ada!").await?;
    said(&dev, "greet | warning: found").await?;
    said(&dev, "greet | warning: \\u001b[2Jother | words").await
}

/// A program that starts another process, as Maven starts compilers and tests, and hangs.
const HANGS: &str =
    "#!/bin/sh\nsleep 600 &\necho $! > \"$STARTED.new\"; mv \"$STARTED.new\" \"$STARTED\"; wait\n";

async fn an_interrupted_command_leaves_nothing_that_runs(_: &Shared) -> Result<()> {
    let author = Author::new()?;
    author.server_in("java", "greet").await?;
    fs::write(author.root.join("greet/plugins/greet/pom.xml"), "<project/>")?;
    for (command, code) in [("dev", 0), ("plugin build", 130), ("plugin test", 130)] {
        ends_with_what_it_started(&author, "mvn", (author.asp()?, command), code).await?;
    }
    // The interpreter of the PATH is asked where it lies.
    let mut asp = author.asp()?;
    asp.env_remove("ASP_PLUGIN_NODE");
    ends_with_what_it_started(&author, "node", (asp, "dev"), 0).await
}

/// Maven runs what a project says, so without a sandbox it runs nowhere before somebody has said yes, and is asked for once.
async fn maven_builds_where_somebody_has_said_yes_at_a_terminal(_: &Shared) -> Result<()> {
    let author = Author::new()?;
    author.server_in("java", "greet").await?;
    fs::write(author.root.join("greet/plugins/greet/pom.xml"), "<project/>")?;
    let bin = tempfile::tempdir_in(author.work.path())?;
    let ran = bin.path().join("ran");
    tool::write_program(&bin.path().join("mvn"), &format!("#!/bin/sh\n: > {}\n", ran.display()))?;
    // It makes no jar, so the command fails in any case.
    let build = async |answer: Option<&str>| -> Result<(String, bool)> {
        let mut asp = author.asp()?;
        asp.args(["plugin", "build"]).arg(&author.root).current_dir(author.work.path());
        asp.env_remove("ASP_TRUST_BUILDS").env_remove("XDG_CONFIG_HOME").env("HOME", author.work.path());
        // Without a sandbox for builds.
        asp.env("ASP_RUNTIME_WORKER_INIT", author.work.path().join("none"));
        asp.env("PATH", format!("{}:{}", bin.path().display(), std::env::var("PATH")?));
        let said = match answer {
            Some(answer) => at_a_terminal(&asp, answer).await?,
            None => String::from_utf8_lossy(&asp.output().await?.stderr).into_owned(),
        };
        let came = ran.exists();
        if came {
            fs::remove_file(&ran)?;
        }
        Ok((said, came))
    };
    for answer in [None, Some("\n"), Some("no\n")] {
        let (said, came) = build(answer).await?;
        ensure!(!came && said.contains("ASP_TRUST_BUILDS=true"), "{answer:?}: {said}");
        ensure!(answer.is_none() || said.contains("[y/N]"), "{answer:?}: {said}");
    }
    for (answer, asked) in [(Some("y\n"), true), (None, false), (Some("no\n"), false)] {
        let (said, came) = build(answer).await?;
        ensure!(came && said.contains("[y/N]") == asked, "{answer:?}: {said}");
    }
    Ok(())
}

/// Runs a command with a terminal of its own, at which `answer` is typed; what is then to be read there.
async fn at_a_terminal(command: &Command, answer: &str) -> Result<String> {
    let quoted = |part: &std::ffi::OsStr| format!("'{}'", part.to_string_lossy());
    let command = command.as_std();
    let line: Vec<String> =
        std::iter::once(command.get_program()).chain(command.get_args()).map(quoted).collect();
    let mut script = Command::new("script");
    script.args(["-q", "-e", "-c", &line.join(" "), "/dev/null"]);
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => script.env(name, value),
            None => script.env_remove(name),
        };
    }
    script.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped()).kill_on_drop(true);
    let mut running = script.spawn().context("script(1) gives a terminal")?;
    let mut stdin = running.stdin.take().context("its input")?;
    tokio::io::AsyncWriteExt::write_all(&mut stdin, answer.as_bytes()).await?;
    let output = running.wait_with_output().await?;
    drop(stdin);
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Interrupts a command when it waits for a program that hangs: it ends in order, and the program with it.
async fn ends_with_what_it_started(
    author: &Author,
    program: &str,
    (mut asp, command): (Command, &str),
    code: i32,
) -> Result<()> {
    let bin = tempfile::tempdir_in(author.work.path())?;
    let file = bin.path().join(program);
    tool::write_program(&file, HANGS)?;
    let started = bin.path().join("started");
    asp.args(command.split(' ')).arg(&author.root).env("STARTED", &started);
    asp.env("PATH", format!("{}:{}", bin.path().display(), std::env::var("PATH")?));
    asp.env("ASP_GATEWAY_PORT", "0").current_dir(author.work.path());
    let mut asp = Process::start(command, asp)?;
    let begun = || async { fs::read_to_string(&started).ok() };
    let process = wait::until(program, wait::START, begun).await.with_context(|| asp.tail())?;
    let place = PathBuf::from(format!("/proc/{}", process.trim()));
    ensure!(place.exists(), "{command}: it runs");
    asp.signal(Signal::INT)?;
    let status = asp.wait(wait::START).await?;
    ensure!(status.code() == Some(code), "{command}, {program}: {status}\n{}", asp.tail());
    let gone = || async { (!place.exists()).then_some(()) };
    wait::until("what it started is gone", wait::CONVERGE, gone)
        .await
        .with_context(|| format!("{command}, {program}: {}", asp.tail()))
}

/// Waits for a line, as long as it takes to start something on a busy machine.
pub(crate) async fn said(dev: &Process, text: &str) -> Result<()> {
    let seen = || async { dev.log().contains(text).then_some(()) };
    wait::until(text, wait::START, seen)
        .await
        .with_context(|| format!("no line with `{text}`: {}", dev.tail()))
}

async fn programs_read_json_alone_and_find_how_tokens_are_minted(_: &Shared) -> Result<()> {
    let author = Author::new()?;
    author.server("greet").await?;
    let output = author.work.path().join("output");
    let mut command = author.asp()?;
    command.env("OUTPUT", &output);
    let asp = command.as_std();
    let mut shell = Command::new("sh");
    shell.args(["-c", "exec \"$@\" > \"$OUTPUT\"", "sh"]).arg(asp.get_program()).args(asp.get_args());
    for (name, value) in asp.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    shell.arg("dev").arg(&author.root).args(["--port", "0", "--json"]);
    let dev = Process::start("asp dev", shell)?;
    ready(&dev).await?;
    author.edit("greet/greet.yaml", "type: tool", "type: tole")?;
    said(&dev, "not applied: ").await?;
    author.server("second").await?;
    author.edit("greet/greet.yaml", "type: tole", "type: tool")?;
    said(&dev, "applied: specs").await?;
    let written = fs::read_to_string(&output)?;
    let lines: Vec<Value> = written.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    ensure!(lines.len() == 2 && lines[1]["mcpServers"]["second"].is_object(), "{written}");

    // What a person would type, with the `asp` of this test first on the PATH.
    let mint = lines[0]["mint"].as_str().context("how tokens are minted")?;
    let path = format!("{}:/usr/bin:/bin", tool::asp()?.parent().context("a folder")?.display());
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(format!("{mint} --org acme --user bob")).env("PATH", path);
    let minted = shell.output().await?;
    ensure!(minted.status.success(), "{mint}: {}", String::from_utf8_lossy(&minted.stderr));
    let mut told = lines[0].clone();
    let token = String::from_utf8(minted.stdout)?;
    told["mcpServers"]["greet"]["headers"]["Authorization"] = format!("Bearer {}", token.trim()).into();
    greets(&told, "greet", "Hello, Ada!").await
}

/// Specs that lint well, and that the publisher refuses.
async fn what_is_not_accepted_changes_no_code(_: &Shared) -> Result<()> {
    let author = Author::new()?;
    author.server("greet").await?;
    let dev = author.dev(&["--port", "0"])?;
    ready(&dev).await?;
    let block = block(&dev).context("the block of an mcp.json is printed")?;
    author.edit("greet/server.yaml", "issuers: [dev]", "issuers: [nobody]")?;
    refused_times(&dev, 1).await?;
    author.edit("greet/plugins/greet/main.py", "Hello,", "Welcome,")?;
    refused_times(&dev, 2).await?;
    greets(&block, "greet", "Hello, Ada!").await.context("the code of what is not accepted runs")?;
    author.edit("greet/server.yaml", "issuers: [nobody]", "issuers: [dev]")?;
    said(&dev, "applied: the code of greet").await?;
    greets(&block, "greet", "Welcome, Ada!").await
}

async fn refused_times(dev: &Process, times: usize) -> Result<()> {
    let seen = || async {
        let lines = dev.log().lines();
        let refused = lines.iter().filter(|line| line.starts_with("not applied: "));
        (refused.count() >= times).then_some(())
    };
    let waited = wait::until("it is not applied", wait::START, seen).await;
    waited.with_context(|| format!("{times} loads are not refused: {}", dev.tail()))
}

async fn node_from_an_empty_folder_to_a_call_and_an_edit(_: &Shared) -> Result<()> {
    first_call("node", "greet/plugins/greet/main.mjs", "`Hello, ", "`Welcome, ").await
}

async fn java_from_an_empty_folder_to_a_call_and_an_edit(_: &Shared) -> Result<()> {
    first_call("java", "greet/plugins/greet/Main.java", "\"Hello, ", "\"Welcome, ").await
}

/// `asp plugin new`, `asp dev`, a client, an edit, the client again.
async fn first_call(language: &str, file: &str, from: &str, to: &str) -> Result<()> {
    let author = Author::new()?;
    author.server_in(language, "greet").await?;
    let dev = author.dev(&["--port", "0"])?;
    ready(&dev).await?;
    let block = block(&dev).context("the block of an mcp.json is printed")?;
    greets(&block, "greet", "Hello, Ada!").await.with_context(|| dev.tail())?;
    author.edit(file, from, to)?;
    let taken_up = || async { dev.log().contains("applied: the code of greet").then_some(()) };
    wait::until("the edit is taken up", wait::START, taken_up).await.with_context(|| dev.tail())?;
    greets(&block, "greet", "Welcome, Ada!").await.with_context(|| dev.tail())
}

async fn a_taken_port_and_a_folder_without_a_server_are_named_with_the_way_out(_: &Shared) -> Result<()> {
    let author = Author::new()?;
    let refused = async |arguments: &[&str]| {
        let mut dev = author.dev(arguments)?;
        let status = dev.wait(wait::START).await?;
        ensure!(!status.success(), "{}", dev.tail());
        anyhow::Ok(dev.log().lines().join("\n"))
    };
    for _ in 0..2 {
        let said = refused(&["--port", "0"]).await?;
        ensure!(said.contains("asp plugin new hello --language python"), "{said}");
        fs::create_dir_all(author.root.join("empty"))?;
    }
    author.server("greet").await?;
    let taken = std::net::TcpListener::bind("127.0.0.1:0")?;
    let port = taken.local_addr()?.port().to_string();
    let said = refused(&["--port", &port]).await?;
    ensure!(said.contains(&port) && said.contains("--port 0"), "{said}");
    Ok(())
}

pub(crate) async fn ready(dev: &Process) -> Result<()> {
    let seen = || async { dev.log().lines().iter().any(|line| line.starts_with("ready")).then_some(()) };
    wait::until("ready", wait::START, seen).await.with_context(|| dev.tail())
}

/// The first block that a person was told.
pub(crate) fn block(dev: &Process) -> Option<Value> {
    blocks(dev).into_iter().next()
}

fn last_block(dev: &Process) -> Option<Value> {
    blocks(dev).pop()
}

/// What stands between a line `{` and a line `}`.
fn blocks(dev: &Process) -> Vec<Value> {
    let mut found = Vec::new();
    let mut open: Option<String> = None;
    for line in dev.output().lines() {
        match (line.as_str(), &mut open) {
            ("{", _) => open = Some(line),
            (rest, Some(text)) => {
                text.push_str(rest);
                if rest == "}" {
                    found.extend(open.take().and_then(|text| serde_json::from_str(&text).ok()));
                }
            }
            (_, None) => {}
        }
    }
    found
}

/// The official client, in both eras, with what the block says and nothing else.
async fn greets(told: &Value, server: &str, greeting: &str) -> Result<()> {
    let entry = &told["mcpServers"][server];
    let text =
        |value: &Value| value.as_str().map(str::to_owned).with_context(|| format!("{value} in {told}"));
    let url = text(&entry["url"])?;
    let authorization = text(&entry["headers"]["Authorization"])?;
    let token = authorization.strip_prefix("Bearer ").context("a bearer token")?;
    let place = Place { url: &url, token, tools: &[], environment: &[] };
    for (mode, protocol) in MODES {
        let answer = clients::python_calls(&place, mode, server, &json!({"name": "Ada"})).await?;
        ensure!(answer["protocol"] == protocol, "{mode}: {answer}");
        let said = &answer["result"]["structuredContent"]["greeting"];
        ensure!(*said == greeting, "{mode}: {greeting} is not what came: {answer}");
    }
    Ok(())
}

/// The processes below a process, from /proc.
fn descendants(process: u32) -> BTreeSet<u32> {
    let mut found = BTreeSet::new();
    let mut open = vec![process];
    while let Some(next) = open.pop() {
        let tasks = fs::read_dir(format!("/proc/{next}/task")).into_iter().flatten().flatten();
        for task in tasks {
            let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            let children = children.split_whitespace().filter_map(|child| child.parse::<u32>().ok());
            open.extend(children.filter(|child| found.insert(*child)));
        }
    }
    found
}
