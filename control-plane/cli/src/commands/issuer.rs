//! `asp issuer`: the issuers whose users the platform lets in.
//!
//! Keeps true: a new issuer is stored only after its documents were fetched and, unless the admin skips that, a token of it
//! would be accepted; tokens are printed nowhere.

use std::io::{BufRead, IsTerminal, Read};
use std::path::Path;

use anyhow::{Context, anyhow};
use asp_command::environment::{Environment, ProcessEnvironment};
use asp_command::failure::Failure;
use asp_command::print;
use asp_issuers::document::Document;
use asp_issuers::fetch::Fetcher;
use asp_issuers::preset::{Preset, PresetValues};
use asp_issuers::trial::{TokenParts, Trial};
use asp_platform::secret::Secret;
use reqwest::Url;
use serde_json::{Value, json};

use super::answer::{self, list, number, text, texts};
use super::client::{AdminClient, api_path, block_on};
use super::device_login::DeviceLogin;
use super::mcp::edge_url;
use super::stored_login::now;
use crate::args::issuer::{IssuerAddArgs, IssuerCommand, IssuerNameArgs, IssuerTryArgs};

/// Longest token or line that is read, in bytes.
const MAX_READ: u64 = 64 << 10;

/// Runs one of the commands.
pub fn run(command: &IssuerCommand) -> Result<(), Failure> {
    match command {
        IssuerCommand::Add(args) => add(args),
        IssuerCommand::Try(args) => try_stored(args),
        IssuerCommand::List(args) => {
            let api = AdminClient::new(&ProcessEnvironment)?;
            let issuers = block_on(async { api.get("/api/issuers").await?.accepted() })?;
            answer::show(&issuers, args.json, &lines(&issuers).join("\n"));
            Ok(())
        }
        IssuerCommand::Remove(IssuerNameArgs { name, admins, json }) => {
            let api = AdminClient::new(&ProcessEnvironment)?;
            let side = if *admins { "admins" } else { "clients" };
            block_on(async { api.delete(&api_path(&["api", "issuers", side, name])).await?.accepted() })?;
            let words = format!("{name} was deleted; its tokens are refused within a second");
            answer::show(&json!({ "name": name, "deleted": true }), *json, &words);
            Ok(())
        }
    }
}

/// Formats the issuers in the store, and those of the operator's file whose keys are fetched.
fn lines(issuers: &Value) -> Vec<String> {
    let fetched = |side: &str, name: &str| {
        list(issuers, "fetched").find(|one| text(one, "side") == side && text(one, "name") == name)
    };
    let of = |side: &str, name: &str, iss: &str, fault: &str| {
        let keys =
            fetched(side, name).map(|one| format!(" keys={}", number(one, "keys"))).unwrap_or_default();
        let fault = if fault.is_empty() { String::new() } else { format!(" fault: {fault}") };
        format!("{side:<8} {name:<20} {iss}{keys}{fault}")
    };
    let mut lines: Vec<String> = Vec::new();
    for one in list(issuers, "issuers") {
        let iss = one.pointer("/document/iss").and_then(Value::as_str).unwrap_or_default();
        lines.push(of(text(one, "side"), text(one, "name"), iss, text(one, "fault")));
    }
    let is_stored = |one: &&Value| {
        let same = |other: &Value| ["side", "name"].iter().all(|key| text(other, key) == text(one, key));
        list(issuers, "issuers").any(same)
    };
    for one in list(issuers, "fetched").filter(|one| !is_stored(one)) {
        lines.push(of(text(one, "side"), text(one, "name"), "(operator's file)", text(one, "fault")));
    }
    lines
}

fn add(args: &IssuerAddArgs) -> Result<(), Failure> {
    let environment = ProcessEnvironment;
    let preset = preset(&args.preset)?;
    let name = args.name.clone().unwrap_or_else(|| args.preset.clone());
    let values = values(args, preset)?;
    let proposal = preset.propose(&name, &values).map_err(|fault| Failure::bad("--at", fault))?;
    let document = proposal.document;
    // Without access to the admin API nobody logs in for nothing.
    let api = if args.print { None } else { Some(AdminClient::new(&environment)?) };
    let trial = block_on(fetch(&document))?;
    if !args.json {
        print::json(&document);
    }
    let audience = document.audiences.first().cloned().map_or_else(|| edge_origin(&environment), Ok)?;
    print::note(&format!("at {}, for tokens with the audience {audience} (docs/issuers):", args.preset));
    proposal.notes.iter().for_each(|note| print::note(&format!("- {note}")));
    let Some(api) = api else {
        if args.json {
            print::json(&json!({ "document": document, "stored": false }));
        }
        return Ok(());
    };
    let token = match &args.token {
        Some(file) => Some(read_token(file)?),
        None if args.no_login => None,
        None => {
            let audience = preset.sends_audience().then_some(audience.as_str());
            Some(log_in(&document, &trial, audience)?)
        }
    };
    let origin = edge_origin(&environment)?;
    let evaluate = |token: Secret| evaluate(&trial, Some(preset), &token, &origin, args.json);
    let caller = token.map(evaluate).transpose()?;
    if let Some(caller) = caller.as_ref().filter(|_| !args.json) {
        print::line(&describe_caller(caller));
    }
    let path = api_path(&["api", "issuers", "clients", &name]);
    block_on(async {
        let body = json!(document);
        match args.replace {
            true => api.put(&path, &body).await?.accepted(),
            false => api.put_if_match(&path, &body, None).await?.accepted(),
        }
    })?;
    let keys = trial.keys();
    let words = format!(
        "{name} is stored with {keys} keys; name it in `auth.issuers` of a server.yaml, and register each server's redirect \
         {origin}/SERVER/oauth/callback"
    );
    let stored = json!({ "document": document, "stored": true, "keys": keys, "caller": caller });
    answer::show(&stored, args.json, &words);
    Ok(())
}

fn try_stored(args: &IssuerTryArgs) -> Result<(), Failure> {
    let environment = ProcessEnvironment;
    let preset = args.preset.as_deref().map(preset).transpose()?;
    let api = AdminClient::new(&environment)?;
    let path = api_path(&["api", "issuers", "clients", &args.name]);
    let stored = block_on(async { api.get(&path).await?.accepted() })?;
    let document = stored.get("document").cloned().unwrap_or_default();
    let mut document: Document = serde_json::from_value(document).context("read the stored issuer")?;
    document.name.clone_from(&args.name);
    let trial = block_on(fetch(&document))?;
    let origin = edge_origin(&environment)?;
    let token = match &args.token {
        Some(file) => read_token(file)?,
        None => {
            let sends = preset.is_some_and(Preset::sends_audience);
            let audience = document.audiences.first().map_or(origin.as_str(), String::as_str);
            log_in(&document, &trial, sends.then_some(audience))?
        }
    };
    let caller = evaluate(&trial, preset, &token, &origin, args.json)?;
    let accepted = json!({ "accepted": true, "caller": caller });
    answer::show(&accepted, args.json, &describe_caller(&caller));
    Ok(())
}

fn preset(name: &str) -> Result<Preset, Failure> {
    Preset::parse(name).ok_or_else(|| Failure::bad("--preset", format!("`{name}` is not a preset")))
}

/// Returns the values of the command line; the others are asked at the terminal.
fn values(args: &IssuerAddArgs, preset: Preset) -> Result<PresetValues, Failure> {
    let place = ask_missing(args.at.as_ref(), "--at", preset.place())?;
    let client = ask_missing(args.client_id.as_ref(), "--client-id", "ID of the client registered there")?;
    let org = match preset.is_org_of_place() {
        true => String::new(),
        false => ask_missing(args.org.as_ref(), "--org", "org that its users belong to")?,
    };
    Ok(PresetValues { place, client, org, audience: args.audience.clone() })
}

fn ask_missing(given: Option<&String>, option: &str, what: &str) -> Result<String, Failure> {
    if let Some(given) = given {
        return Ok(given.clone());
    }
    let input = std::io::stdin();
    if !input.is_terminal() {
        return Err(Failure::bad(option, format!("is required: the {what}")));
    }
    print::note(&format!("{option}: {what}?"));
    let mut line = String::new();
    input.lock().take(MAX_READ).read_line(&mut line).context("read the terminal")?;
    match line.trim() {
        "" => Err(Failure::bad(option, format!("is required: the {what}"))),
        value => Ok(value.to_owned()),
    }
}

/// Fetches the documents of an issuer; its own origin may be private, because an admin has named it.
async fn fetch(document: &Document) -> Result<Trial, Failure> {
    let origins = Url::parse(&document.iss).map(|iss| iss.origin().ascii_serialization());
    let fetcher = Fetcher::new(origins.into_iter().collect()).context("create the HTTP client")?;
    let trial =
        Trial::start(document, &fetcher).await.map_err(|fault| anyhow!("{}: {fault}", document.iss))?;
    trial.faults.iter().for_each(|fault| print::note(&format!("a published key is not used: {fault}")));
    Ok(trial)
}

/// Logs a person in at the issuer.
fn log_in(document: &Document, trial: &Trial, audience: Option<&str>) -> Result<Secret, Failure> {
    let other = "take a token of another login with --token FILE";
    let login = document.login.as_ref();
    let login = login.ok_or_else(|| anyhow!("nobody can log in at {} from here: {other}", document.iss))?;
    let (device_authorization_endpoint, token_endpoint) = trial.device_endpoints().ok_or_else(|| {
        anyhow!("{} has no login for devices without a browser (RFC 8628): {other}", document.iss)
    })?;
    let login = DeviceLogin {
        client_id: &login.client_id,
        scopes: &login.scopes,
        audience,
        device_authorization_endpoint,
        token_endpoint,
    };
    let tokens = block_on(async {
        let tokens = login.run(&ProcessEnvironment).await;
        tokens.map_err(|error| Failure::Other(anyhow!("{error:#}; or {other}")))
    })?;
    Ok(Secret::new(tokens.access_token))
}

fn read_token(file: &Path) -> Result<Secret, Failure> {
    let shown = || format!("read {}", file.display());
    let source: Box<dyn Read> = match file.to_str() {
        Some("-") => Box::new(std::io::stdin()),
        _ => Box::new(std::fs::File::open(file).with_context(shown)?),
    };
    let mut token = String::new();
    source.take(MAX_READ).read_to_string(&mut token).with_context(shown)?;
    Ok(Secret::new(token.trim().to_owned()))
}

/// Returns the caller that a token proves; if it is refused, prints the reason and the remedy and fails.
fn evaluate(
    trial: &Trial,
    preset: Option<Preset>,
    token: &Secret,
    origin: &str,
    as_json: bool,
) -> Result<Value, Failure> {
    let why = match trial.evaluate(origin, token.expose(), now()) {
        Ok(caller) => {
            return Ok(json!({
                "user": caller.user,
                "org": caller.org,
                "groups": caller.groups,
                "scopes": caller.scopes,
                "client": caller.client,
            }));
        }
        Err(why) => why,
    };
    let remedy = preset.and_then(|preset| preset.remedy(TokenParts::read(token.expose()).as_ref()));
    if as_json {
        print::json(&json!({ "accepted": false, "why": why, "remedy": remedy }));
    } else {
        print::error(&format!("the platform refuses this token: {why}"));
        remedy.into_iter().for_each(print::note);
    }
    Err(Failure::Refused)
}

/// Describes the caller that a token proves.
fn describe_caller(caller: &Value) -> String {
    let listed = |member: &str| match texts(caller, member).join(", ") {
        names if names.is_empty() => "none".to_owned(),
        names => names,
    };
    let of = |member: &str| text(caller, member);
    let groups = listed("groups");
    let scopes = listed("scopes");
    format!(
        "the platform accepts this token:\n  user    {}\n  org     {}\n  groups  {groups}\n  scopes  {scopes}\n  client  {}",
        of("user"),
        of("org"),
        of("client")
    )
}

/// Returns the origin of the platform's edge.
fn edge_origin(environment: &dyn Environment) -> Result<String, Failure> {
    Ok(edge_url(None, environment)?.origin().ascii_serialization())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_shows_where_an_issuer_is_from_its_keys_and_its_fault() {
        let issuers = json!({
            "issuers": [{ "side": "clients", "name": "okta", "document": { "iss": "https://acme.okta.com/oauth2/default" },
                          "fault": "it did not answer within 10 s" }],
            "fetched": [{ "side": "clients", "name": "okta", "keys": 2 }, { "side": "admins", "name": "ops", "keys": 1 }],
        });
        assert_eq!(
            lines(&issuers),
            [
                "clients  okta                 https://acme.okta.com/oauth2/default keys=2 fault: it did not answer within 10 s",
                "admins   ops                  (operator's file) keys=1",
            ]
        );
    }

    #[test]
    fn a_caller_is_described_with_what_it_lacks() {
        let caller =
            json!({ "user": "00u1", "org": "acme", "groups": ["ops", "dev"], "scopes": [], "client": "mcp" });
        assert_eq!(
            describe_caller(&caller),
            "the platform accepts this token:\n  user    00u1\n  org     acme\n  groups  ops, dev\n  scopes  none\n  client  mcp"
        );
    }

    #[test]
    fn values_and_tokens_are_taken_as_given() {
        assert_eq!(ask_missing(Some(&"x".to_owned()), "--at", "domain").unwrap(), "x");
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), " ey.J.x\n").unwrap();
        assert_eq!(read_token(file.path()).unwrap().expose(), "ey.J.x");
        assert!(read_token(Path::new("/nonexistent/token")).is_err());
    }
}
