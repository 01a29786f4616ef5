//! `asp plugin`: creates, runs and tests plugins, offline; builds, pushes and installs their packages.

pub(super) mod packages;

use std::path::{Path, PathBuf};
use std::slice::from_ref;
use std::time::Duration;

use anyhow::Context;
use asp_command::failure::Failure;
use asp_command::print;
use asp_packaging::answers::Answers;
use asp_packaging::languages::Languages;
use asp_packaging::local::{Local, PluginOutcome, Request};
use asp_packaging::scaffold::{self, NewPrimitive, Scaffold, ScaffoldType};
use asp_packaging::{Unit, build, examples, schemas, trust};
use asp_platform::shell;
use asp_proto::plugin::server_message::Payload;
use asp_registry::Source;
use serde_json::{Value, json};

use super::answer;
use super::client::block_on;
use super::known::suggest;
use super::specs;
use crate::args::plugin::{PluginCommand, PluginNewArgs, PluginRunArgs, PluginTestArgs};
use crate::serve::stop::wait_for_signal;

/// Timeout of one example.
const EXAMPLE: Duration = Duration::from_secs(60);
/// Maximum log lines shown of a failed example.
const MAX_LOG: usize = 20;
/// Maximum characters shown of an unexpected value.
const MAX_SHOWN: usize = 1000;

pub fn run(command: &PluginCommand) -> Result<(), Failure> {
    // Asked before anything runs that a signal would have to end.
    match command {
        PluginCommand::Build(args) => trust::ask(&args.directory)?,
        PluginCommand::Test(args) => trust::ask(&args.directory)?,
        PluginCommand::Run(args) => trust::ask(&args.directory)?,
        _ => {}
    }
    match command {
        PluginCommand::New(args) => new(args),
        PluginCommand::Build(args) => block_on(run_until_signal(packages::build(args))),
        PluginCommand::Push(args) => block_on(packages::push(args)),
        PluginCommand::Test(args) => block_on(run_until_signal(test(args))),
        PluginCommand::Run(args) => block_on(run_until_signal(call(args))),
        PluginCommand::Install(args) => packages::install(args),
    }
}

/// Runs the work until a signal arrives; dropping the work then ends its child processes, which the signal itself does not reach.
/// Listens before the work begins.
pub(super) async fn run_until_signal(work: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    tokio::select! {
        biased;
        signal = wait_for_signal() => Err(Failure::Signalled(signal?)),
        done = work => done,
    }
}

fn new(args: &PluginNewArgs) -> Result<(), Failure> {
    let wanted = NewPrimitive {
        id: &args.id,
        server: args.server.as_deref(),
        kind: args.kind,
        language: args.language,
    };
    let Scaffold { made, changed } =
        scaffold::new(&args.directory, &wanted).context("create the primitive")?;
    if args.json {
        let shown = |file: &PathBuf| file.display().to_string();
        let made: Vec<String> = made.iter().map(shown).collect();
        print::json(&json!({ "made": made, "changed": changed.as_ref().map(shown) }));
        return Ok(());
    }
    for file in &made {
        print::line(&format!("made {}", file.display()));
    }
    if let Some(file) = &changed {
        print::line(&format!("changed {}", file.display()));
    }
    let here = shell::path(&args.directory);
    let id = &args.id;
    match args.kind {
        ScaffoldType::Tool | ScaffoldType::Task => {
            print::line(&format!("next: asp plugin test {here}   (calls it with the examples of its spec)"));
            print::line(&format!("      asp plugin run {id} {here} --arguments '{{\"name\":\"Ada\"}}'"));
            print::line(&format!("      asp dev {here}   (serves it on this machine)"));
        }
        ScaffoldType::Resource | ScaffoldType::Prompt => {
            print::line(&format!("next: asp dev {here}   (serves it on this machine)"));
        }
        ScaffoldType::Elicitation => print_dependency("elicitations", id),
        ScaffoldType::Delegate => print_dependency("delegations", id),
    }
    Ok(())
}

/// Prints the key by which a primitive may use the elicitation or the delegate.
fn print_dependency(key: &str, id: &str) {
    print::line(&format!(
        "next: in the spec of the primitive that asks, primitiveDependencies: {{{key}: [{{id: {id}}}]}}"
    ));
}

async fn test(args: &PluginTestArgs) -> Result<(), Failure> {
    let languages = Languages::find_async().await;
    let (sources, units) = prepare(&args.directory, &languages.present).await?;
    let examples = examples::examples(&sources)?;
    let mut local = Local::start(&units, languages).await?;
    let mut passed = 0_u32;
    let mut failed = 0_u32;
    let mut results = Vec::new();
    for plugin in local.callable.clone() {
        let wanted = args.only.as_ref().is_none_or(|only| plugin.is_named(only));
        for example in examples.get(&plugin.id).into_iter().flatten().filter(|_| wanted) {
            let Some(input) = &example.input else { continue };
            let mut log = Vec::new();
            let request = Request { arguments: input, answers: &example.answers, timeout: EXAMPLE };
            let ended = local.call(&plugin, &request, &mut |message| collect_log(message, &mut log)).await;
            let fault = fault(ended, example.output.as_ref());
            if fault.is_none() {
                passed += 1;
            } else {
                failed += 1;
            }
            if !args.json {
                print_example(&format!("{}: {}", plugin.id, example.text), fault.as_deref(), &log);
            }
            results.push(json!({ "plugin": plugin.id, "example": example.text, "fault": fault, "log": log }));
        }
    }
    let is_wanted = |id: &&String| args.only.as_ref().is_none_or(|only| only == *id);
    let left_out = local.left_out.keys().filter(is_wanted).count();
    let skipped = if left_out > 0 { format!(", {left_out} left out") } else { String::new() };
    let words = format!("{passed} passed, {failed} failed{skipped}");
    let counts = json!({ "passed": passed, "failed": failed, "leftOut": left_out, "examples": results });
    answer::show(&counts, args.json, &words);
    if passed + failed == 0 {
        print::error(&nothing_tested(args, &units, left_out));
        return Err(Failure::Refused);
    }
    if failed > 0 {
        print_output(&local).await;
        return Err(Failure::Refused);
    }
    if !args.json {
        print::next_step(&format!("asp deploy {}", shell::path(&args.directory)));
    }
    Ok(())
}

/// Prints how the call with an example ended and, if it failed, what the plugin logged.
fn print_example(title: &str, fault: Option<&str>, log: &[String]) {
    let Some(fault) = fault else { return print::line(&format!("ok     {title}")) };
    print::line(&format!("FAILED {title}\n       {fault}"));
    log.iter().for_each(|line| print::line(&format!("       {line}")));
}

/// Describes why no example was run.
fn nothing_tested(args: &PluginTestArgs, units: &[Unit], left_out: usize) -> String {
    let known = |id: &String| {
        units.iter().any(|unit| unit.id == *id || unit.primitives.iter().any(|one| one.id == *id))
    };
    let directory = args.directory.display();
    match &args.only {
        Some(only) if !known(only) => {
            let primitives = units.iter().flat_map(|unit| &unit.primitives);
            let ids: Vec<&str> = primitives.map(|primitive| primitive.id.as_str()).collect();
            format!("`{only}` is not a plugin of {directory}{}", suggest(only, &ids))
        }
        _ if left_out > 0 => {
            "nothing was tested: its language is not installed; see the settings above".to_owned()
        }
        Some(only) => format!("{only} has no example with an input; write `examples` in its spec"),
        None => "no plugin here has an example with an input; write `examples` in its spec".to_owned(),
    }
}

/// Collects log lines of a call, up to the number that is shown.
fn collect_log(message: &Payload, log: &mut Vec<String>) {
    if let Payload::Log(line) = message
        && log.len() < MAX_LOG
    {
        log.push(format!("log: {}", line.message.replace('\n', "\n       ")));
    }
}

async fn print_output(local: &Local) {
    let lines = local.output_at_end().await;
    if !lines.is_empty() {
        print::error(&format!("the plugin's output:\n{}", lines.join("\n")));
    }
}

/// Returns what is wrong with the outcome of a call; `None` if it is what the example expects.
fn fault(ended: anyhow::Result<PluginOutcome>, expected: Option<&Value>) -> Option<String> {
    match ended {
        Ok(PluginOutcome::Completed(output)) => match expected {
            Some(expected) if *expected != output => {
                Some(format!("expected {}, got {}", format_value(expected), format_value(&output)))
            }
            _ => None,
        },
        Ok(PluginOutcome::Error(said)) => Some(format!("the tool returned an error: {said}")),
        Ok(PluginOutcome::Failed { code, message }) => Some(format!("{code}: {message}{}", remedy(&code))),
        Err(error) => Some(print::in_full(&error)),
    }
}

/// Returns a remedy for the author, for failures that the platform names.
fn remedy(code: &str) -> &'static str {
    match code {
        "INVALID_ARGUMENT" => " (the input must fit input_schema)",
        "INVALID_OUTPUT" => {
            " (return a value that matches output_schema, or change the schema; at most 4 MiB)"
        }
        "INPUT_UNSUPPORTED" | "DELEGATION_FAILED" => {
            " (no user can be asked here: pass --answer ID=JSON, or add `answers` to the example)"
        }
        "UNDECLARED" => " (name it in the spec's primitiveDependencies)",
        "DEADLINE" => " (end sooner, or raise capabilities.maxRuntimeSeconds)",
        _ => "",
    }
}

/// Formats a value, cut to a readable length.
fn format_value(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(MAX_SHOWN) {
        Some((end, _)) => format!("{}… ({} bytes)", text.get(..end).unwrap_or_default(), text.len()),
        None => text,
    }
}

async fn call(args: &PluginRunArgs) -> Result<(), Failure> {
    let arguments: Value = serde_json::from_str(&args.arguments)
        .map_err(|error| Failure::bad("--arguments", format!("must be a JSON object: {error}")))?;
    let languages = Languages::find_async().await;
    let (_, units) = prepare(&args.directory, &languages.present).await?;
    let mut local = Local::start(&units, languages).await?;
    let Some(plugin) = local.callable.iter().find(|plugin| plugin.id == args.id).cloned() else {
        let ids: Vec<&str> = local.callable.iter().map(|plugin| plugin.id.as_str()).collect();
        let id = &args.id;
        let directory = args.directory.display();
        let unknown = || format!("`{id}` is not a plugin of {directory}{}", suggest(id, &ids));
        let why = local.left_out.get(&args.id).cloned();
        return Err(Failure::bad("ID", why.unwrap_or_else(unknown)));
    };
    let request = Request {
        arguments: &arguments,
        answers: &Answers::new(&args.answers),
        timeout: Duration::from_secs(args.timeout),
    };
    let ended = local.call(&plugin, &request, &mut |message| show(message)).await;
    match ended {
        Ok(PluginOutcome::Completed(output)) if args.json => {
            print::json(&json!({ "outcome": "completed", "output": output }));
            Ok(())
        }
        Ok(PluginOutcome::Completed(output)) => {
            print::json(&output);
            Ok(())
        }
        other => {
            let fault = fault(other, None).unwrap_or_default();
            if args.json {
                print::json(&json!({ "outcome": "failed", "fault": fault }));
            } else {
                print::error(&fault);
            }
            print_output(&local).await;
            Err(Failure::Refused)
        }
    }
}

/// Prints a message in one line, if it is of interest to a person.
fn show(message: &Payload) {
    let text = match message {
        Payload::Progress(progress) => format!("progress {:.0} % {}", progress.percent, progress.message),
        Payload::Status(status) => format!("status {}", status.phase),
        Payload::Log(line) if !line.severity.is_empty() => format!("log {} {}", line.severity, line.message),
        Payload::Log(line) => format!("log {} {}", line.level().as_str_name().to_lowercase(), line.message),
        Payload::Chunk(chunk) => format!("chunk {}", chunk.text),
        Payload::Artifact(artifact) => {
            format!("artifact {} {} ({} bytes)", artifact.r#type, artifact.uri, artifact.size)
        }
        Payload::ArtifactData(data) => format!("artifact bytes {}+{}", data.offset, data.data.len()),
        Payload::Elicitation(asked) => format!("asks {}", asked.elicitation_id),
        Payload::Delegation(asked) => format!("delegates to {}", asked.delegate_id),
        Payload::Checkpoint(saved) => format!("checkpoint {} ({} bytes)", saved.seq, saved.capsule.len()),
        _ => return,
    };
    print::error(&text);
}

/// Builds the plugins of a directory in these languages, writes the schema files that their code has outdated, and reads the
/// specs and the units.
async fn prepare(directory: &Path, languages: &[&'static str]) -> Result<(Vec<Source>, Vec<Unit>), Failure> {
    let (sources, found) = specs::checked_before_build(directory)?;
    let units = asp_packaging::units(&found.servers, Some(directory));
    build::all_async(&units, Some(languages.to_vec())).await?;
    let mut outdated = schemas::outdated(directory, &sources, &units)?;
    outdated.retain(|unit| unit.is_in(Some(languages)));
    for unit in &outdated {
        // Err: the code does not load, and its call says why.
        let derived = schemas::from_code(directory, &sources, from_ref(unit)).await.unwrap_or_default();
        for schemas in derived {
            schemas.renew()?.iter().for_each(|change| print::error(change));
        }
    }
    read(directory)
}

/// Reads the specs of a directory and the units to build and install.
fn read(directory: &Path) -> Result<(Vec<Source>, Vec<Unit>), Failure> {
    let (sources, found) = specs::checked(directory)?;
    let units = asp_packaging::units(&found.servers, Some(directory));
    Ok((sources, units))
}
