//! `asp links` and `asp link-provider`: accounts that users link at other services, and these services.
//!
//! Keeps true: a client's secret comes from a file or the terminal, so that no list of processes shows it, and is printed nowhere,
//! nor shown while it is typed.

use std::io::{IsTerminal, Read};
use std::path::Path;

use anyhow::Context;
use asp_command::environment::ProcessEnvironment;
use asp_command::failure::Failure;
use asp_command::print;
use asp_platform::secret::Secret;
use asp_store::linked_accounts::Preset;
use serde_json::{Map, Value, json};

use super::answer::{self, is, list, number, text, texts};
use super::client::{AdminClient, api_path, block_on, with_query};
use super::hidden_input;
use super::plugin::run_until_signal;
use crate::args::links::{LinkProviderAddArgs, LinkProviderCommand, LinksCommand, LinksFilterArgs};

/// Longest secret that is read, in bytes.
const MAX_READ: u64 = 64 << 10;

/// Runs one of the commands of `asp links`.
pub fn run(command: &LinksCommand) -> Result<(), Failure> {
    let api = AdminClient::new(&ProcessEnvironment)?;
    block_on(async {
        match command {
            LinksCommand::List(args) => {
                let mut asked = parts(&args.filter);
                asked.push(("limit", args.limit.to_string()));
                let links = api.get(&with_query("/api/links", &asked)?).await?.accepted()?;
                answer::rows(&links, args.output.json, line);
            }
            LinksCommand::Remove(args) => {
                let path = with_query("/api/links", &parts(&args.filter))?;
                let done = api.delete(&path).await?.accepted()?;
                let words = format!("{} linked accounts were removed", number(&done, "removed"));
                answer::show(&done, args.output.json, &words);
            }
        }
        Ok(())
    })
}

fn parts(filter: &LinksFilterArgs) -> Vec<(&'static str, String)> {
    let LinksFilterArgs { org, issuer, user, provider } = filter;
    let all = [("org", org), ("issuer", issuer), ("user", user), ("provider", provider)];
    all.into_iter().filter_map(|(name, value)| Some((name, value.clone()?))).collect()
}

/// Formats one account: its org, user, provider and scopes, and when it was linked and used.
fn line(link: &Value) -> String {
    let [org, issuer, user, provider, created, expires] =
        ["org", "issuer", "user", "provider", "createdAt", "expiresAt"].map(|name| text(link, name));
    let state = if is(link, "live") { "" } else { " not accepted any more" };
    let used = match text(link, "usedAt") {
        "" => "never",
        at => at,
    };
    let scopes = texts(link, "scopes").join(",");
    format!(
        "{org} {user} ({issuer}) {provider} scopes={scopes} linked {created} used {used} ends {expires}{state}"
    )
}

/// Runs one of the commands of `asp link-provider`.
pub fn run_provider(command: &LinkProviderCommand) -> Result<(), Failure> {
    match command {
        LinkProviderCommand::Add(args) => add(args),
        LinkProviderCommand::List(args) => {
            let api = AdminClient::new(&ProcessEnvironment)?;
            let found = block_on(async { api.get("/api/link-providers").await?.accepted() })?;
            let lines: Vec<String> = list(&found, "providers").map(provider_line).collect();
            answer::show(&found, args.json, &lines.join("\n"));
            Ok(())
        }
        LinkProviderCommand::Remove(args) => {
            let api = AdminClient::new(&ProcessEnvironment)?;
            let path = api_path(&["api", "link-providers", &args.name]);
            block_on(async { api.delete(&path).await?.accepted() })?;
            let deleted = json!({ "name": args.name, "deleted": true });
            answer::show(&deleted, args.output.json, &format!("{} was deleted", args.name));
            Ok(())
        }
    }
}

fn add(args: &LinkProviderAddArgs) -> Result<(), Failure> {
    let api = AdminClient::new(&ProcessEnvironment)?;
    // Before signals are listened for, because a pipe may not end.
    let read = match &args.client_secret_file {
        Some(file) if !args.public => Some(read_secret(file)?),
        _ => None,
    };
    block_on(run_until_signal(async {
        let secret = match read {
            None if !args.public => Some(ask_secret().await?),
            read => read,
        };
        put(&api, args, secret.as_ref()).await
    }))
}

/// Stores a provider and shows it.
async fn put(api: &AdminClient, args: &LinkProviderAddArgs, secret: Option<&Secret>) -> Result<(), Failure> {
    let body = body(args, secret)?;
    let path = api_path(&["api", "link-providers", &args.name]);
    let stored = api.put(&path, &body).await?.accepted()?;
    let words = format!(
        "{}\nregister <public URL>/account/callback as the redirect of the client; specs name it by `auth: {{linked: {}}}`",
        provider_line(&stored),
        args.name
    );
    answer::show(&stored, args.output.json, &words);
    if args.primitives.is_empty() && !args.output.json {
        print::note("no primitive may use it yet: name some with --for");
    }
    Ok(())
}

/// Returns the body of the request that stores a provider.
fn body(args: &LinkProviderAddArgs, secret: Option<&Secret>) -> Result<Value, Failure> {
    let preset = match (&args.preset, &args.discover) {
        (Some(preset), _) => {
            let fault = || Failure::bad("--preset", format!("`{preset}` is not a preset"));
            Some(Preset::parse(preset).ok_or_else(fault)?)
        }
        (None, Some(_)) => None,
        (None, None) => Preset::parse(&args.name),
    };
    if preset.is_none() && args.discover.is_none() {
        let fault =
            format!("`{}` is not a preset: name one with --preset, or an issuer with --discover", args.name);
        return Err(Failure::bad("NAME", fault));
    }
    let known = preset.map(|preset| preset.document.provider());
    let mut document = Map::new();
    let mut put = |name: &str, value: Value| drop(document.insert(name.to_owned(), value));
    put("clientId", json!(args.client_id));
    put("for", json!(args.primitives));
    if args.public {
        put("clientAuth", json!("none"));
    }
    if !args.org.is_empty() {
        put("orgs", json!(args.org));
    }
    let lists = known.map(|known| (known.origins, known.scopes)).unwrap_or_default();
    for (name, known, given) in [("origins", lists.0, &args.origin), ("scopes", lists.1, &args.scope)] {
        if !given.is_empty() {
            let all: Vec<&String> = known.iter().chain(given).collect();
            put(name, json!(all));
        }
    }
    if let Some(days) = args.ttl_days {
        put("ttlDays", json!(days));
    }
    let mut body = json!({ "document": document });
    if let Some(body) = body.as_object_mut() {
        let texts = [
            ("preset", preset.map(|preset| preset.name.to_owned())),
            ("discover", args.discover.clone()),
            ("clientSecret", secret.map(|secret| secret.expose().to_owned())),
        ];
        for (name, value) in texts {
            body.extend(value.map(|value| (name.to_owned(), json!(value))));
        }
    }
    Ok(body)
}

/// Asks for the secret of a client at the terminal.
async fn ask_secret() -> Result<Secret, Failure> {
    if !std::io::stdin().is_terminal() {
        return Err(Failure::bad("--client-secret-file", "is required, or --public"));
    }
    hidden_input::ask("--client-secret-file", "secret of the client").await
}

/// Reads the secret of a client from its file.
fn read_secret(file: &Path) -> Result<Secret, Failure> {
    let shown = || format!("read {}", file.display());
    let source: Box<dyn Read> = match file.to_str() {
        Some("-") => Box::new(std::io::stdin()),
        _ => Box::new(std::fs::File::open(file).with_context(shown)?),
    };
    let mut secret = String::new();
    source.take(MAX_READ).read_to_string(&mut secret).with_context(shown)?;
    match secret.trim() {
        "" => Err(Failure::bad("--client-secret-file", "is empty".to_owned())),
        secret => Ok(Secret::new(secret.to_owned())),
    }
}

/// Formats one provider: its name, title and client, and who may use it.
fn provider_line(provider: &Value) -> String {
    let document = provider.get("document").cloned().unwrap_or_default();
    let listed = |member: &str| match texts(&document, member).join(" ") {
        all if all.is_empty() => "nobody".to_owned(),
        all => all,
    };
    let [title, client] = ["title", "clientId"].map(|name| text(&document, name));
    let name = text(provider, "name");
    format!("{name} {title} client {client} for {} orgs {}", listed("for"), listed("orgs"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::JsonArgs;

    fn args(name: &str) -> LinkProviderAddArgs {
        LinkProviderAddArgs {
            name: name.into(),
            preset: None,
            discover: None,
            client_id: "c".into(),
            client_secret_file: None,
            public: false,
            primitives: vec!["crm/*".into()],
            org: Vec::new(),
            origin: Vec::new(),
            scope: Vec::new(),
            ttl_days: None,
            output: JsonArgs::default(),
        }
    }

    #[test]
    fn a_known_provider_needs_only_a_client() {
        let secret = Secret::from("s3cret");
        let body = body(&args("github"), Some(&secret)).unwrap();
        assert_eq!(
            body,
            json!({"preset": "github", "clientSecret": "s3cret", "document": {"clientId": "c", "for": ["crm/*"]}})
        );
    }

    #[test]
    fn given_origins_and_scopes_are_added_to_those_of_the_preset() {
        let more = LinkProviderAddArgs {
            preset: Some("salesforce".into()),
            origin: vec!["https://acme.my.salesforce.com".into()],
            scope: vec!["api".into()],
            ..args("sales")
        };
        let body = body(&more, None).unwrap();
        assert_eq!(
            body["document"]["origins"],
            json!(["https://login.salesforce.com", "https://acme.my.salesforce.com"])
        );
        assert_eq!(body["document"]["scopes"], json!(["refresh_token", "api"]));
    }

    #[test]
    fn a_name_without_a_preset_needs_an_issuer() {
        assert!(body(&args("acme"), None).is_err());
        let found =
            LinkProviderAddArgs { discover: Some("https://login.acme.example".into()), ..args("acme") };
        assert_eq!(body(&found, None).unwrap()["discover"], "https://login.acme.example");
        let bad = LinkProviderAddArgs { preset: Some("gitlab".into()), ..args("acme") };
        assert!(body(&bad, None).is_err());
    }

    #[test]
    fn a_line_shows_whose_account_it_is_and_its_last_use() {
        let link = json!({"org": "acme", "issuer": "okta", "user": "alice", "provider": "github", "live": false,
            "scopes": ["repo"], "createdAt": "A", "expiresAt": "E"});
        assert_eq!(
            line(&link),
            "acme alice (okta) github scopes=repo linked A used never ends E not accepted any more"
        );
    }
}
