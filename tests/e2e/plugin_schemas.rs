//! An author's commands without a stack: schemas that come from the code of each language, and scripted answers.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Result, ensure};
use asp_e2e::tool;
use serde_json::json;
use tokio::process::Command;

use crate::trial::{Shared, trials};

const LANGUAGES: [&str; 3] = ["python", "node", "java"];
/// A tool that asks a user and a model, and says what they said.
const ASKS: &str = r#"
from dataclasses import dataclass
from asp_plugin import Context, DelegationError, plugin

@dataclass
class Input:
    pass

@plugin.tool
async def run(args: Input, ctx: Context) -> dict:
    city = await ctx.elicit("which_city")
    try:
        tone = (await ctx.delegate("tone", "hm"))["text"]
    except DelegationError as error:
        tone = error.reason
    return {"said": f"{city.action} {city.fields.get('name')} {tone}"}
"#;
const ASKS_SPEC: &str = r#"
id: asks
name: Asks
type: tool
version: 1.0.0
owner: a@example.com
summary: Asks.
mutation: read_only
primitiveDependencies: {elicitations: [{id: which_city}], delegations: [{id: tone}]}
examples:
  - input: {}
    answers: {which_city: {name: Oslo}, tone: calm}
    output: {said: accept Oslo calm}
runtime: {mode: plugin, language: python, entrypoint: main.py}
"#;
const QUESTION: &str = "id: which_city\nname: City\ntype: elicitation\nversion: 1.0.0\nowner: a@example.com\n\
                        primitiveSchema: {message: Which city?, fields: [{name: name, type: string}]}\n";
const DELEGATE: &str = "id: tone\nname: Tone\ntype: delegate\nversion: 1.0.0\nowner: a@example.com\n\
                        summary: T.\nprimitiveSchema: {sampling: {maxTokens: 8}}\n";

/// A tool that uses a secret and prints it.
const USES_SECRET: &str = r#"
from dataclasses import dataclass
from asp_plugin import Context, plugin

@dataclass
class Input:
    pass

@plugin.tool
async def run(args: Input, ctx: Context) -> dict:
    key = ctx.secret("crm-key").reveal()
    print("printed", key, flush=True)
    return {"reversed": key[::-1]}
"#;
const USES_SECRET_SPEC: &str = r#"
id: asks
name: Asks
type: tool
version: 1.0.0
owner: a@example.com
summary: Asks.
mutation: read_only
runtime: {mode: plugin, language: python, entrypoint: main.py, secrets: [crm-key]}
"#;

trials! { plugins:
    the_code_of_each_language_says_the_schemas_that_are_committed,
    a_question_is_answered_by_a_flag_or_an_example,
    a_secret_of_the_operators_file_reaches_the_primitive_that_it_is_for,
    a_second_tool_joins_the_package_of_the_first,
}

/// Returns a command of an author's, with every language.
fn command(folder: &Path, arguments: &[&str]) -> Result<Command> {
    let mut command = Command::new(tool::asp()?);
    command.args(arguments).current_dir(folder).stdin(Stdio::null()).kill_on_drop(true);
    let (node, node_shim) = tool::plugin_node()?;
    let (java, java_shim) = tool::plugin_java()?;
    command.env("ASP_RUNTIME_BIN", tool::runtime()?).env("ASP_PLUGIN_PYTHON", tool::plugin_python()?);
    command.env("ASP_PLUGIN_NODE", node).env("ASP_PLUGIN_NODE_SHIM", node_shim);
    command.env("ASP_PLUGIN_JAVA", java).env("ASP_PLUGIN_JAVA_SHIM", java_shim);
    Ok(command)
}

/// Runs a command; whether it succeeded, and all that it said.
async fn ended(command: &mut Command) -> Result<(bool, String)> {
    let output = command.output().await?;
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    Ok((output.status.success(), said))
}

async fn asp(folder: &Path, arguments: &[&str]) -> Result<(bool, String)> {
    ended(&mut command(folder, arguments)?).await
}

async fn must(folder: &Path, arguments: &[&str]) -> Result<String> {
    let (ended_well, said) = asp(folder, arguments).await?;
    ensure!(ended_well, "{arguments:?}: {said}");
    Ok(said)
}

async fn fails(folder: &Path, arguments: &[&str]) -> Result<String> {
    let (ended_well, said) = asp(folder, arguments).await?;
    ensure!(!ended_well, "{arguments:?} went well: {said}");
    Ok(said)
}

async fn the_code_of_each_language_says_the_schemas_that_are_committed(_: &Shared) -> Result<()> {
    let work = tempfile::tempdir()?;
    let file = |language: &str| work.path().join(format!("greet-{language}/greet_{language}.schema.json"));
    for language in LANGUAGES {
        must(work.path(), &["plugin", "new", &format!("greet_{language}"), "--language", language]).await?;
    }
    must(work.path(), &["plugin", "build", "--check"]).await?;
    ensure!(!work.path().join("dist").exists(), "a check writes no package");
    let mut made = Vec::new();
    for language in LANGUAGES {
        made.push(fs::read(file(language))?);
        fs::remove_file(file(language))?;
    }
    let said = fails(work.path(), &["lint", "."]).await?;
    ensure!(said.matches("asp plugin build").count() == 3, "{said}");
    let said = fails(work.path(), &["plugin", "build", "--check"]).await?;
    ensure!(said.matches("is missing").count() == 3, "{said}");
    must(work.path(), &["plugin", "build"]).await?;
    for (language, made) in LANGUAGES.iter().zip(&made) {
        ensure!(fs::read(file(language))? == *made, "{language}: not what `asp plugin new` made");
    }
    let said = must(work.path(), &["plugin", "test"]).await?;
    ensure!(said.contains("3 passed, 0 failed"), "{said}");
    drift(work.path(), &file("python")).await
}

/// The code changes, and its file of schemas does not.
async fn drift(work: &Path, file: &Path) -> Result<()> {
    let code = work.join("greet-python/plugins/greet_python/main.py");
    let before = fs::read_to_string(&code)?;
    fs::write(&code, before.replacen("name: str", "name: str\n    loud: bool = False", 1))?;
    let committed = fs::read(file)?;
    let said = fails(work, &["plugin", "build", "--check"]).await?;
    ensure!(said.contains("+       \"loud\": {") && !said.contains("greet_node"), "{said}");
    ensure!(fs::read(file)? == committed, "a check writes no schema");
    let said =
        must(work, &["plugin", "run", "greet_python", "--arguments", r#"{"name": "Ada", "loud": true}"#])
            .await?;
    ensure!(said.contains("wrote ") && said.contains("Ada"), "{said}");
    ensure!(fs::read_to_string(file)?.contains("loud"), "the schema is older than the code");
    fs::write(&code, before.replacen("name: str", "name: complex", 1))?;
    let said = fails(work, &["plugin", "build"]).await?;
    ensure!(said.contains("SCHEMA: Input.name: `complex` has no JSON Schema"), "{said}");
    Ok(())
}

async fn a_question_is_answered_by_a_flag_or_an_example(_: &Shared) -> Result<()> {
    let work = tempfile::tempdir()?;
    must(work.path(), &["plugin", "new", "asks", "--language", "python"]).await?;
    let folder = work.path().join("asks");
    fs::write(folder.join("asks.yaml"), ASKS_SPEC)?;
    fs::write(folder.join("which_city.yaml"), QUESTION)?;
    fs::write(folder.join("tone.yaml"), DELEGATE)?;
    fs::write(folder.join("plugins/asks/main.py"), ASKS)?;
    must(work.path(), &["plugin", "build"]).await?;
    let said = must(work.path(), &["plugin", "test"]).await?;
    ensure!(said.contains("1 passed, 0 failed"), "{said}");
    let run = ["plugin", "run", "asks"];
    let flags = [r#"--answer=which_city={"name":"Bergen"}"#, r#"--answer=tone="kind""#];
    let said = must(work.path(), &[&run[..], &flags].concat()).await?;
    ensure!(said.contains("accept Bergen kind"), "{said}");
    let said = must(work.path(), &[&run[..], &[r#"--answer=which_city="decline""#]].concat()).await?;
    ensure!(said.contains("decline None unsupported"), "{said}");
    let said = fails(work.path(), &run).await?;
    ensure!(said.contains("INPUT_UNSUPPORTED") && said.contains("--answer"), "{said}");
    Ok(())
}

async fn a_secret_of_the_operators_file_reaches_the_primitive_that_it_is_for(_: &Shared) -> Result<()> {
    let work = tempfile::tempdir()?;
    must(work.path(), &["plugin", "new", "asks", "--language", "python"]).await?;
    let folder = work.path().join("asks");
    fs::write(folder.join("asks.yaml"), USES_SECRET_SPEC)?;
    fs::write(folder.join("plugins/asks/main.py"), USES_SECRET)?;
    must(work.path(), &["plugin", "build"]).await?;
    let secrets = tempfile::tempdir()?;
    let file = secrets.path().join("secrets.json");
    let run = async |user: &str| {
        fs::write(&file, json!({"crm-key": {"value": "hunter2", "for": [user]}}).to_string())?;
        let mut command = command(work.path(), &["plugin", "run", "asks"])?;
        ended(command.env("ASP_SECRETS", &file)).await
    };
    let (done, said) = run("asks/asks").await?;
    ensure!(done && said.contains("2retnuh") && !said.contains("hunter2"), "{said}");
    let (done, said) = run("asks/other").await?;
    let missing =
        "secret crm-key is missing: the entry's `for` does not name the primitive; grant it to asks/asks";
    ensure!(!done && said.contains("SECRET_UNAVAILABLE") && said.contains(missing), "{said}");
    ensure!(!said.contains("hunter2"), "{said}");
    Ok(())
}

async fn a_second_tool_joins_the_package_of_the_first(_: &Shared) -> Result<()> {
    let work = tempfile::tempdir()?;
    for language in LANGUAGES {
        let new = |id: String| ["plugin".to_owned(), "new".to_owned(), id];
        let chosen = ["--language".to_owned(), language.to_owned()];
        let server = ["--server".to_owned(), format!("greet-{language}")];
        let first = [&new(format!("greet_{language}"))[..], &chosen].concat();
        let second = [&new(format!("bye_{language}"))[..], &chosen, &server].concat();
        for command in [first, second] {
            must(work.path(), &command.iter().map(String::as_str).collect::<Vec<_>>()).await?;
        }
    }
    must(work.path(), &["plugin", "build", "--check"]).await?;
    let said = must(work.path(), &["plugin", "test"]).await?;
    ensure!(said.contains("6 passed, 0 failed"), "{said}");
    let said = must(work.path(), &["plugin", "build"]).await?;
    let files = fs::read_dir(work.path().join("dist"))?.count();
    ensure!(files == 6, "a package and its digest for each language: {said}");
    Ok(())
}
