//! The way of a plugin through the artifact store: built, pushed, registered by its digest, installed beside a
//! runtime by that digest, called by the official client. In every language, and for a stdio MCP server that
//! knows nothing of the platform: the public reference server.

use std::fs;
use std::path::Path;
use std::process::{Output, Stdio};

use anyhow::{Context, Result, ensure};
use asp_e2e::process::Process;
use asp_e2e::stack::{Options, Stack};
use asp_e2e::{tool, wait};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::plugins::{Answer, Client, MODES};
use crate::trial::{Shared, trials};

const LANGUAGES: [&str; 3] = ["python", "node", "java"];

trials! { packages:
    from_the_code_through_the_store_to_an_official_client,
    a_directory_with_code_is_deployed_by_one_command,
    tests_run_where_half_a_languages_settings_are_missing,
    where_a_language_is_missing_that_is_said_and_no_missing_example,
}

/// `asp` with a stack's admin API and a folder to work in.
struct Shell<'a> {
    stack: &'a Stack,
    folder: &'a Path,
    url: String,
    token: String,
}

impl Shell<'_> {
    async fn new<'a>(stack: &'a Stack, folder: &'a Path, role: &str) -> Result<Shell<'a>> {
        let token = stack.token(&["--admin", "--user", "ops", "--role", role]).await?;
        Ok(Shell { stack, folder, url: format!("http://{}", stack.admin()), token })
    }

    fn command(&self, arguments: &[&str]) -> Result<Command> {
        let mut command = Command::new(tool::asp()?);
        let (java, shim) = tool::plugin_java()?;
        command.args(arguments).current_dir(self.folder).stdin(Stdio::null()).kill_on_drop(true);
        command.env("ASP_ADMIN_URL", &self.url).env("ASP_ADMIN_TOKEN", &self.token);
        command.env("ASP_PLUGIN_JAVA", java).env("ASP_PLUGIN_JAVA_SHIM", shim);
        let (node, shim) = tool::plugin_node()?;
        command.env("ASP_PLUGIN_NODE", node).env("ASP_PLUGIN_NODE_SHIM", shim);
        command.env("ASP_PLUGIN_PYTHON", tool::plugin_python()?).env("ASP_RUNTIME_BIN", tool::runtime()?);
        Ok(command)
    }

    async fn run(&self, arguments: &[&str]) -> Result<Output> {
        Ok(self.command(arguments)?.output().await?)
    }

    /// The standard output of a command that must succeed.
    async fn must(&self, arguments: &[&str]) -> Result<String> {
        let output = self.run(arguments).await?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{arguments:?}: {said}");
        Ok(String::from_utf8(output.stdout)?)
    }

    /// What a command that must fail says.
    async fn fails(&self, arguments: &[&str]) -> Result<String> {
        let output = self.run(arguments).await?;
        ensure!(!output.status.success(), "{arguments:?} went well");
        Ok(String::from_utf8_lossy(&output.stderr).into_owned())
    }

    /// `asp plugin install --from` into the folder of the stack's runtime.
    async fn install(&self) -> Result<Output> {
        let runtime = self.stack.runtime.as_ref().context("the stack has a runtime")?.lock().await;
        let plugins = runtime.plugins().display().to_string();
        self.run(&["plugin", "install", "--from", &self.url, "--plugins", &plugins, "--json"]).await
    }
}

async fn from_the_code_through_the_store_to_an_official_client(_: &Shared) -> Result<()> {
    let stack = bare_stack().await?;
    let work = tempfile::tempdir()?;
    let admin = Shell::new(&stack, work.path(), "platform").await?;
    for language in LANGUAGES {
        let id = format!("greet_{language}");
        admin.must(&["plugin", "new", &id, "--language", language, "src"]).await?;
    }
    reference_server(&work.path().join("src/reference"))?;
    let said = admin.must(&["plugin", "run", "sum", "src", "--arguments", r#"{"a": 19, "b": 23}"#]).await?;
    ensure!(said.contains("42"), "a stdio server runs on the developer's machine too: {said}");
    let built = build(&admin).await?;
    ensure!(built.len() == 4 && build(&admin).await? == built, "building again makes other bytes: {built:?}");
    admin.must(&["plugin", "push"]).await?;
    let again = admin.must(&["plugin", "push", "dist"]).await?;
    ensure!(again.lines().count() == 4 && again.lines().all(|line| line.starts_with("unchanged")), "{again}");
    pin(&work.path().join("src"), &built)?;
    admin.must(&["apply", "src"]).await?;

    let puller = Shell::new(&stack, work.path(), "platform:read").await?;
    let pulled = puller.install().await?;
    ensure!(pulled.status.success(), "{}", String::from_utf8_lossy(&pulled.stderr));
    let installed: Value = serde_json::from_slice(&pulled.stdout)?;
    for (id, digest) in &built {
        let found = installed.as_array().into_iter().flatten().find(|one| one["id"] == **id);
        let found = found.with_context(|| format!("{id} is not installed: {installed}"))?;
        ensure!(found["artifactSha256"] == **digest && found["outcome"] == "installed", "{found}");
    }
    for language in LANGUAGES {
        let server = format!("greet-{language}");
        wait::until(&server, wait::START, || shown(&stack, &server)).await?;
    }
    for (mode, protocol) in MODES {
        let client = Client { stack: &stack, mode, protocol };
        for language in LANGUAGES {
            let server = format!("greet-{language}");
            let name = format!("greet_{language}");
            let answer = client.call(&server, &name, &json!({"name": "Ada"}), &json!({})).await?;
            let result = answer.result.with_context(|| format!("{language}: {:?}", answer.error))?;
            ensure!(result["structuredContent"]["greeting"] == "Hello, Ada!", "{language}: {result}");
        }
        stdio(&client).await.context(mode)?;
    }
    kept(&admin, &puller, &built).await?;
    stack.stop(&[]).await
}

async fn a_directory_with_code_is_deployed_by_one_command(_: &Shared) -> Result<()> {
    let stack = bare_stack().await?;
    let work = tempfile::tempdir()?;
    let admin = Shell::new(&stack, work.path(), "platform").await?;
    admin.must(&["plugin", "new", "greet_python", "--language", "python", "src"]).await?;
    let spec = work.path().join("src/greet-python/greet_python.yaml");
    let before = fs::read_to_string(&spec)?;
    let plan = admin.must(&["deploy", "src", "--plan"]).await?;
    for part in [
        "write    greet-python/greet_python.yaml: the digest of its package",
        "push     greet_python-0.1.0-py3-none-any.whl",
        "apply    greet-python: new",
    ] {
        ensure!(plan.contains(part), "{part}: {plan}");
    }
    ensure!(fs::read_to_string(&spec)? == before, "a plan writes nothing");

    // Nobody has installed it, and the command says so.
    let waiting = admin.fails(&["deploy", "src", "--yes", "--timeout", "5"]).await?;
    ensure!(waiting.contains("greet_python@0.1.0 is off") && waiting.contains("--plugins"), "{waiting}");
    let plugins = {
        let runtime = stack.runtime.as_ref().context("the stack has a runtime")?.lock().await;
        runtime.plugins().display().to_string()
    };
    let deploy = ["deploy", "src", "--yes", "--plugins", &plugins];
    let done = admin.must(&deploy).await?;
    ensure!(
        done.contains("installed greet_python@0.1.0") && done.contains("served: greet-python at "),
        "{done}"
    );
    wait::until("greet-python", wait::START, || shown(&stack, "greet-python")).await?;

    let code = work.path().join("src/greet-python/plugins/greet_python/main.py");
    fs::write(&code, fs::read_to_string(&code)? + "\n# other\n")?;
    let refused = admin.fails(&deploy).await?;
    ensure!(
        refused.contains("greet_python@0.1.0 is deployed with other code: raise its version"),
        "{refused}"
    );
    admin.must(&[&deploy[..], &["--replace"]].concat()).await?;
    stack.stop(&[]).await
}

/// A plugin that was not installed when its spec came is hidden until the gateway has asked the runtime again.
async fn shown(stack: &Stack, server: &str) -> Option<()> {
    let (mode, protocol) = MODES[0];
    let client = Client { stack, mode, protocol };
    let answer = client.call(server, &server.replace('-', "_"), &json!({"name": "Ada"}), &json!({})).await;
    answer.ok()?.result.map(|_| ())
}

/// A stack that has a runtime, but no plugin.
async fn bare_stack() -> Result<Stack> {
    let primitives = tempfile::tempdir()?;
    let demo = tool::root()?.join("primitives/demo");
    copy(&demo, &primitives.path().join("demo"))?;
    let options =
        Options { primitives: primitives.path().to_owned(), plugins: true, ..Options::repository()? };
    Stack::start(options).await
}

/// Id and digest of each package, in the order of the ids.
async fn build(shell: &Shell<'_>) -> Result<Vec<(String, String)>> {
    let built: Vec<Value> = serde_json::from_str(&shell.must(&["plugin", "build", "src", "--json"]).await?)?;
    let text = |value: &Value, key: &str| value[key].as_str().unwrap_or_default().to_owned();
    Ok(built.iter().map(|one| (text(one, "id"), text(one, "sha256"))).collect())
}

/// Writes the digests into the specs, as a pull request would.
fn pin(source: &Path, built: &[(String, String)]) -> Result<()> {
    for (id, digest) in built {
        let named = |name: &str| match id.as_str() {
            "reference" => source.join("reference").join(format!("{name}.yaml")),
            greet => source.join(greet.replace('_', "-")).join(format!("{greet}.yaml")),
        };
        let own = if id == "reference" { &REFERENCE_SPECS[..] } else { &[""] };
        let files: Vec<_> = own.iter().map(|name| named(name)).collect();
        for file in files {
            let spec = fs::read_to_string(&file)?;
            let pinned = spec
                .replacen("runtime:\n", &format!("runtime:\n  artifactSha256: \"{digest}\"\n"), 1)
                .replacen("runtime: {", &format!("runtime: {{artifactSha256: \"{digest}\", "), 1);
            ensure!(pinned != spec, "{} has no runtime", file.display());
            fs::write(&file, pinned)?;
        }
    }
    Ok(())
}

const REFERENCE: &str = "
apiVersion: asp/v1
name: reference
description: The public reference server, in a sandbox.
protocols: [mcp]
defaultExposure: allow
auth: {schemes: [jwt], issuers: [dev]}
primitives: [{ref: reference/sum}, {ref: reference/slow}, {ref: reference/form}, {ref: reference/model},
  {ref: reference/roots}, {ref: reference/features}, {ref: reference/place}]
";

const REFERENCE_SPECS: [&str; 7] = ["sum", "slow", "form", "model", "roots", "features", "place"];

const FEATURES: &str = "
id: features
name: features
type: resource
version: 1.0.0
owner: test@example.com
summary: Tests.
primitiveSchema: {uri: \"demo://resource/static/document/features.md\", mimeType: text/markdown}
security: {riskClass: low}
runtime: {mode: mcp-stdio, package: reference@2.0.0}
";

const PLACE: &str = "
id: place
name: place
type: prompt
version: 1.0.0
owner: test@example.com
summary: Tests.
primitiveSchema: {arguments: [{name: city, required: true}, {name: state}]}
security: {riskClass: low}
runtime: {mode: mcp-stdio, package: reference@2.0.0, tool: args-prompt}
";

fn tool_spec(id: &str, tool: &str, properties: &str) -> String {
    format!(
        "id: {id}\nname: {id}\ntype: tool\nversion: 1.0.0\nowner: test@example.com\nsummary: Tests.\n\
         mutation: read_only\ncapabilities: {{supportsProgress: true, supportsCancellation: true}}\n\
         primitiveSchema: {{input_schema: {{type: object, properties: {{{properties}}}}}}}\n\
         security: {{riskClass: low}}\nruntime:\n  mode: mcp-stdio\n  package: reference@2.0.0\n  tool: {tool}\n"
    )
}

/// `server-everything` with a bundle's manifest.
pub(crate) fn reference_package(package: &Path) -> Result<()> {
    let program = tool::everything_js()?;
    let modules = program.ancestors().find(|path| path.ends_with("node_modules")).context("node_modules")?;
    copy(modules, &package.join("node_modules"))?;
    let manifest = json!({
        "manifest_version": "0.3", "name": "reference", "version": "2.0.0", "description": "For a test.",
        "author": {"name": "test"},
        "server": {
            "type": "node",
            "entry_point": "node_modules/@modelcontextprotocol/server-everything/dist/index.js",
            "mcp_config": {"command": "node", "args": [
                "${__dirname}/node_modules/@modelcontextprotocol/server-everything/dist/index.js", "stdio",
            ]},
        },
    });
    Ok(fs::write(package.join("manifest.json"), manifest.to_string())?)
}

/// A server whose tools are those of `server-everything`, which lies beside it.
fn reference_server(folder: &Path) -> Result<()> {
    reference_package(&folder.join("plugins/reference"))?;
    fs::write(folder.join("server.yaml"), REFERENCE)?;
    fs::write(folder.join("sum.yaml"), tool_spec("sum", "get-sum", "a: {type: number}, b: {type: number}"))?;
    let slow = "duration: {type: number}, steps: {type: number}";
    fs::write(folder.join("slow.yaml"), tool_spec("slow", "trigger-long-running-operation", slow))?;
    fs::write(folder.join("form.yaml"), tool_spec("form", "trigger-elicitation-request", ""))?;
    let prompt = "prompt: {type: string}";
    fs::write(folder.join("model.yaml"), tool_spec("model", "trigger-sampling-request", prompt))?;
    fs::write(folder.join("roots.yaml"), tool_spec("roots", "get-roots-list", ""))?;
    fs::write(folder.join("features.yaml"), FEATURES)?;
    fs::write(folder.join("place.yaml"), PLACE)?;
    Ok(())
}

/// Files and folders; npm's links to programs are no part of a package.
pub(crate) fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let (entry, kind) = entry.and_then(|entry| Ok((entry.path(), entry.file_type()?)))?;
        let target = to.join(entry.file_name().context("a name")?);
        if kind.is_dir() {
            copy(&entry, &target)?;
        } else if kind.is_file() {
            fs::copy(&entry, &target)?;
        }
    }
    Ok(())
}

/// A call, one with progress, and one that is given up; the server lives on.
async fn stdio(client: &Client<'_>) -> Result<()> {
    let sum = json!({"a": 19, "b": 23});
    let answer = client.call("reference", "sum", &sum, &json!({})).await?;
    let result = answer.result.with_context(|| format!("{:?}", answer.error))?;
    ensure!(result["content"][0]["text"].as_str().is_some_and(|text| text.contains("42")), "{result}");
    let answer = client.call("reference", "slow", &json!({"duration": 1, "steps": 4}), &json!({})).await?;
    ensure!(answer.result.is_some_and(|result| result["isError"] != true), "{:?}", answer.error);
    ensure!(answer.progress.len() >= 4, "{:?}", answer.progress);
    let long = json!({"duration": 100, "steps": 200});
    let answer = client.call("reference", "slow", &long, &json!({"cancel": 0.1})).await?;
    ensure!(answer.cancelled && answer.result.is_none(), "{answer:?}");
    let answer = client.call("reference", "sum", &sum, &json!({})).await?;
    ensure!(answer.result.is_some(), "{:?}", answer.error);
    asks(client).await
}

/// The server asks the user, the model and for the client's roots, and serves a resource and a prompt.
async fn asks(client: &Client<'_>) -> Result<()> {
    let said = |answer: &Answer| answer.result.as_ref().map(Value::to_string).unwrap_or_default();
    let form = json!({"answers": {"name": {"name": "Ada"}}});
    let answer = client.call("reference", "form", &json!({}), &form).await?;
    ensure!(answer.asked.len() == 1 && said(&answer).contains("Ada"), "{answer:?}");
    let model = json!({"sampled": "It is 42."});
    let answer = client.call("reference", "model", &json!({"prompt": "What is it?"}), &model).await?;
    ensure!(answer.sampled.len() == 1 && said(&answer).contains("It is 42."), "{answer:?}");
    // A client that cannot is not asked.
    let answer = client.call("reference", "model", &json!({"prompt": "What is it?"}), &json!({})).await?;
    ensure!(answer.result.as_ref().is_some_and(|result| result["isError"] == true), "{answer:?}");
    let others = json!({"roots": ["file:///src"], "prompts": ["place", {"city": "Oslo"}],
                        "reads": "demo://resource/static/document/features.md"});
    let answer = client.call("reference", "roots", &json!({}), &others).await?;
    ensure!(said(&answer).contains("file:///src"), "{answer:?}");
    let content = &answer.read["contents"][0];
    ensure!(content["mimeType"] == "text/markdown" && content["text"].is_string(), "{content}");
    let prompted = answer.prompted["messages"].to_string();
    ensure!(prompted.contains("Oslo"), "{prompted}");
    Ok(())
}

/// What is pinned stays in the store; what is installed is not fetched again; other bytes are not installed.
async fn kept(admin: &Shell<'_>, puller: &Shell<'_>, built: &[(String, String)]) -> Result<()> {
    let again = puller.install().await?;
    let again: Value = serde_json::from_slice(&again.stdout)?;
    ensure!(
        again.as_array().is_some_and(|all| all.iter().all(|one| one["outcome"] == "unchanged")),
        "{again}"
    );
    watched(puller).await?;
    let wheel = admin.folder.join("dist/greet_python-0.1.0-py3-none-any.whl");
    let bytes = fs::read(&wheel)?;
    fs::write(&wheel, [bytes.as_slice(), b"x"].concat())?;
    let refused = admin.fails(&["plugin", "push"]).await?;
    ensure!(refused.contains(".sha256"), "{refused}");
    fs::write(&wheel, bytes)?;
    let pushed = puller.fails(&["plugin", "push"]).await?;
    ensure!(pushed.contains("forbidden"), "{pushed}");
    // A version that is pinned but was never pushed.
    let spec = admin.folder.join("src/greet-python/greet_python.yaml");
    let text = fs::read_to_string(&spec)?.replace("version: 0.1.0", "version: 0.1.1");
    let (_, digest) = built.iter().find(|(id, _)| id == "greet_python").context("greet_python")?;
    fs::write(&spec, text.replace(digest, &"ab".repeat(32)))?;
    admin.must(&["apply", "src"]).await?;
    let missing = puller.install().await?;
    let said = String::from_utf8_lossy(&missing.stderr);
    ensure!(!missing.status.success() && said.contains("plugin push"), "{said}");
    Ok(())
}

/// Beside a runtime: what is not there is installed, again and again, until it is told to end.
async fn watched(puller: &Shell<'_>) -> Result<()> {
    let runtime = puller.stack.runtime.as_ref().context("the stack has a runtime")?.lock().await;
    let plugins = runtime.plugins().to_owned();
    let arguments = ["plugin", "install", "--from", &puller.url, "--every", "1", "--plugins"];
    let mut command = puller.command(&arguments)?;
    command.arg(&plugins);
    let mut watching = Process::start("asp plugin install", command)?;
    let version = plugins.join("greet_node/0.1.0");
    for _ in 0..2 {
        fs::remove_dir_all(&version)?;
        wait::until("the version is there again", wait::CONVERGE, || async {
            version.join("plugin.json").is_file().then_some(())
        })
        .await?;
    }
    let ended = watching.stop().await?;
    ensure!(ended.success(), "{ended}: {}", watching.tail());
    let left = fs::read_dir(&plugins)?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    ensure!(!left.into_iter().any(|name| name.starts_with('.')), "a work folder stays");
    Ok(())
}

/// A shell that no set-up has been in.
async fn where_a_language_is_missing_that_is_said_and_no_missing_example(_: &Shared) -> Result<()> {
    for language in LANGUAGES {
        let work = tempfile::tempdir()?;
        let asp = async |arguments: &[&str]| {
            let mut command = Command::new(tool::asp()?);
            command
                .args(arguments)
                .env_clear()
                .env("PATH", "/usr/bin:/bin")
                .env("ASP_RUNTIME_BIN", tool::runtime()?);
            let output =
                command.current_dir(work.path()).stdin(Stdio::null()).kill_on_drop(true).output().await?;
            let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
            anyhow::Ok((output.status.success(), said))
        };
        let (made, said) = asp(&["plugin", "new", "greet", "--language", language]).await?;
        ensure!(made, "{said}");
        let variable = format!("set ASP_PLUGIN_{}", language.to_uppercase());
        let (passed, said) = asp(&["plugin", "test"]).await?;
        for part in [&variable, ".tools/env", "0 passed, 0 failed, 1 left out", "nothing was tested"] {
            ensure!(!passed && said.contains(part), "{part}: {said}");
        }
        ensure!(!said.contains("has an example"), "{said}");
        let (ran, said) = asp(&["plugin", "run", "greet"]).await?;
        ensure!(!ran && said.contains(&variable) && !said.contains("is not a plugin"), "{said}");
        let (passed, said) = asp(&["plugin", "test", "--only", "great"]).await?;
        ensure!(!passed && said.contains("`great` is not a plugin"), "{said}");
    }
    Ok(())
}

/// A language with one of its two variables is left out, and the others go on.
async fn tests_run_where_half_a_languages_settings_are_missing(_: &Shared) -> Result<()> {
    let work = tempfile::tempdir()?;
    let mut new = Command::new(tool::asp()?);
    new.args(["plugin", "new", "greet", "--language", "python"]).current_dir(work.path());
    ensure!(new.kill_on_drop(true).output().await?.status.success(), "asp plugin new");
    let mut command = Command::new(tool::asp()?);
    command.args(["plugin", "test"]).current_dir(work.path()).stdin(Stdio::null()).kill_on_drop(true);
    command.env("ASP_RUNTIME_BIN", tool::runtime()?).env("ASP_PLUGIN_PYTHON", tool::plugin_python()?);
    command.env("ASP_PLUGIN_NODE", tool::plugin_node()?.0).env_remove("ASP_PLUGIN_NODE_SHIM");
    command.env_remove("ASP_PLUGIN_JAVA").env("ASP_PLUGIN_JAVA_SHIM", tool::plugin_java()?.1);
    let output = command.output().await?;
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    ensure!(output.status.success() && said.contains("1 passed, 0 failed"), "{said}");
    ensure!(!said.contains("left out"), "a language that no plugin here is in: {said}");
    Ok(())
}
