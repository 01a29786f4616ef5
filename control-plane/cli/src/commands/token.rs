//! `asp token`: mints a token from the development issuer, offline, and prints only the token.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use asp_command::environment::{Environment, ProcessEnvironment};
use asp_command::failure::Failure;
use asp_issuers::admin_role::AdminRole;
use asp_platform::secret::Secret;
use serde_json::json;

use super::answer;
use crate::args::TokenArgs;
use crate::break_glass::{BreakGlass, MAX_LIFE, MAX_REASON};
use crate::dev_issuer::{ClientToken, DevIssuer, TtlError};
use crate::settings::listen::{DEFAULT_PORT, ENV_PORT};
use crate::settings::{DEFAULT_STATE_DIR, ENV_PUBLIC_URL, ENV_STATE_DIR};

/// Mints and prints.
pub fn run(args: &TokenArgs) -> Result<(), Failure> {
    if args.new_key {
        let state_dir = state_dir(&ProcessEnvironment);
        require_emergency_key(&state_dir)?;
        BreakGlass::replace(&state_dir).context("replace the emergency key")?;
        let words = "the emergency key was replaced: restart this control plane, which accepts tokens of the old key \
                     until then";
        answer::show(&json!({ "replaced": true }), args.json, words);
        return Ok(());
    }
    let token = mint(args, &ProcessEnvironment)?;
    answer::show(&json!({ "token": token.expose() }), args.json, token.expose());
    Ok(())
}

fn mint(args: &TokenArgs, environment: &dyn Environment) -> Result<Secret, Failure> {
    let text = args.ttl.as_deref().unwrap_or(if args.break_glass { "15m" } else { "1h" });
    let ttl = parse_ttl(text)
        .ok_or_else(|| Failure::bad("--ttl", format!("`{text}` is not a duration: write 30s, 15m or 1h")))?;
    let state_dir = state_dir(environment);
    if args.break_glass {
        return emergency(args, &state_dir, ttl);
    }
    let issuer = DevIssuer::load(&state_dir).context("read the development issuer")?;
    let issuer = issuer.ok_or_else(|| no_state(&state_dir, "development issuer", "asp serve --dev"))?;
    let minted = if args.admin {
        if AdminRole::parse(&args.role).is_none() {
            let message = format!(
                "`{}` is not a role: use platform, org:<id>, server:<name> or installer, with or without :read, or auditor",
                args.role
            );
            return Err(Failure::bad("--role", message));
        }
        issuer.mint_admin(&args.user, &args.role, &args.groups, ttl)
    } else {
        let public_url = public_url(&issuer, environment);
        issuer.mint_client(&ClientToken {
            org: args.org.clone().unwrap_or_default(),
            user: args.user.clone(),
            scopes: args.scopes.clone(),
            groups: args.groups.clone(),
            audience: match &args.server {
                Some(server) => format!("{public_url}/{server}"),
                None => public_url,
            },
            ttl,
        })
    };
    minted.map_err(|error| match error.downcast::<TtlError>() {
        Ok(error) => Failure::bad("--ttl", error.to_string()),
        Err(other) => Failure::Other(other),
    })
}

fn state_dir(environment: &dyn Environment) -> PathBuf {
    environment.get(ENV_STATE_DIR).unwrap_or_else(|| DEFAULT_STATE_DIR.into()).into()
}

/// Requires an existing key: no platform would accept tokens of a new key that it has not read.
fn require_emergency_key(state_dir: &Path) -> Result<(), Failure> {
    let found = BreakGlass::exists_in(state_dir).context("read the emergency key")?;
    if found { Ok(()) } else { Err(no_state(state_dir, "emergency key", "a control plane")) }
}

fn no_state(state_dir: &Path, what: &str, platform: &str) -> Failure {
    let shown = std::path::absolute(state_dir).unwrap_or_else(|_| state_dir.to_owned());
    let message = format!(
        "must be the state directory of {platform}: {} has no {what}; run this where the platform was started, or set \
         {ENV_STATE_DIR}",
        shown.display()
    );
    Failure::bad(ENV_STATE_DIR, message)
}

fn emergency(args: &TokenArgs, state_dir: &Path, life: Duration) -> Result<Secret, Failure> {
    let reason = args.reason.as_deref().unwrap_or_default().trim();
    if reason.is_empty() || reason.len() > MAX_REASON || reason.chars().any(char::is_control) {
        return Err(Failure::bad("--reason", format!("one line of 1 to {MAX_REASON} bytes, for the audit")));
    }
    if life.is_zero() || life > MAX_LIFE {
        return Err(Failure::bad(
            "--ttl",
            format!("an emergency token lives 1 s to {} s", MAX_LIFE.as_secs()),
        ));
    }
    require_emergency_key(state_dir)?;
    let key = BreakGlass::load_or_create(state_dir).context("read the emergency key")?;
    Ok(key.mint(&args.user, reason, life).context("mint an emergency token")?)
}

/// Returns the URL that the running server has recorded; before its first start, that of the settings.
fn public_url(issuer: &DevIssuer, environment: &dyn Environment) -> String {
    if !issuer.audience().is_empty() {
        return issuer.audience().to_owned();
    }
    environment.get(ENV_PUBLIC_URL).unwrap_or_else(|| {
        let port = environment.get(ENV_PORT).unwrap_or_else(|| DEFAULT_PORT.to_string());
        format!("http://127.0.0.1:{port}")
    })
}

/// Parses `30s`, `15m`, `1h` or `30d`; a bare number is seconds.
pub(super) fn parse_ttl(text: &str) -> Option<Duration> {
    let (number, unit) = match text.char_indices().last() {
        Some((at, 's')) => (text.get(..at)?, 1),
        Some((at, 'm')) => (text.get(..at)?, 60),
        Some((at, 'h')) => (text.get(..at)?, 3_600),
        Some((at, 'd')) => (text.get(..at)?, 86_400),
        _ => (text, 1),
    };
    let number: u32 = number.parse().ok()?;
    Some(Duration::from_secs(u64::from(number) * unit))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use base64::Engine;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;

    use super::*;

    fn args() -> TokenArgs {
        TokenArgs {
            org: Some("acme".into()),
            user: "alice".into(),
            scopes: vec!["read".into()],
            groups: vec![],
            ttl: Some("15m".into()),
            server: None,
            admin: false,
            role: "platform".into(),
            break_glass: false,
            reason: None,
            new_key: false,
            json: false,
        }
    }

    fn claims(args: &TokenArgs, dir: &std::path::Path) -> serde_json::Value {
        crate::dev_issuer::install_crypto();
        DevIssuer::load_or_create(dir).unwrap();
        let environment = BTreeMap::from([(ENV_STATE_DIR, dir.to_str().unwrap()), (ENV_PORT, "8090")]);
        let token = mint(args, &environment).unwrap();
        let payload = token.expose().split('.').nth(1).unwrap().to_owned();
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(payload).unwrap()).unwrap()
    }

    #[test]
    fn a_client_token_is_for_the_public_url_and_lives_as_long_as_asked() {
        let dir = tempfile::tempdir().unwrap();
        let minted = claims(&args(), dir.path());
        assert_eq!(minted["aud"], "http://127.0.0.1:8090");
        assert_eq!(minted["exp"].as_u64().unwrap() - minted["iat"].as_u64().unwrap(), 900);
        assert_eq!((&minted["org"], &minted["scope"]), (&"acme".into(), &"read".into()));
        let for_one = TokenArgs { server: Some("demo".into()), ..args() };
        assert_eq!(claims(&for_one, dir.path())["aud"], "http://127.0.0.1:8090/demo");
    }

    #[test]
    fn the_running_servers_audience_wins_over_the_environment() {
        let dir = tempfile::tempdir().unwrap();
        DevIssuer::load_or_create(dir.path()).unwrap().set_audience("http://localhost:1").unwrap();
        assert_eq!(claims(&args(), dir.path())["aud"], "http://localhost:1");
    }

    #[test]
    fn without_a_platforms_state_nothing_is_minted_and_no_key_is_made() {
        let dir = tempfile::tempdir().unwrap();
        crate::dev_issuer::install_crypto();
        let state = dir.path().join("absent");
        let environment = BTreeMap::from([(ENV_STATE_DIR, state.to_str().unwrap())]);
        let admin = TokenArgs { admin: true, org: None, ..args() };
        let reason = Some("the login is down".into());
        let emergency = TokenArgs { break_glass: true, org: None, reason, ..args() };
        for args in [args(), admin, emergency] {
            let refused = mint(&args, &environment).unwrap_err();
            let Failure::Configuration(faults) = refused else { panic!("{refused}") };
            assert_eq!(faults[0].name, ENV_STATE_DIR);
            assert!(faults[0].message.contains(state.to_str().unwrap()), "{faults:?}");
        }
        assert!(matches!(require_emergency_key(&state), Err(Failure::Configuration(_))));
        assert!(!state.exists(), "nothing was written");
    }

    #[test]
    fn an_admin_token_has_its_own_audience_and_a_role() {
        let dir = tempfile::tempdir().unwrap();
        let admin =
            TokenArgs { admin: true, role: "org:acme:read".into(), groups: vec!["finance".into()], ..args() };
        let minted = claims(&admin, dir.path());
        assert_eq!((&minted["aud"], &minted["role"]), (&"asp-admin".into(), &"org:acme:read".into()));
        assert_eq!(minted["groups"], serde_json::json!(["finance"]));
        assert!(minted.get("org").is_none());
    }

    #[test]
    fn a_new_emergency_key_signs_from_then_on() {
        let dir = tempfile::tempdir().unwrap();
        crate::dev_issuer::install_crypto();
        let header = || {
            let reason = Some("the login is down".into());
            let args = TokenArgs { break_glass: true, org: None, reason, ..args() };
            let environment = BTreeMap::from([(ENV_STATE_DIR, dir.path().to_str().unwrap())]);
            mint(&args, &environment).unwrap().expose().split('.').next().unwrap().to_owned()
        };
        BreakGlass::load_or_create(dir.path()).unwrap();
        let first = header();
        assert_eq!(header(), first, "the key stays");
        BreakGlass::replace(dir.path()).unwrap();
        assert_ne!(header(), first);
        let without = TokenArgs { break_glass: true, org: None, ..args() };
        let environment = BTreeMap::from([(ENV_STATE_DIR, dir.path().to_str().unwrap())]);
        let refused = mint(&without, &environment).unwrap_err();
        assert!(matches!(refused, Failure::Configuration(faults) if faults[0].name == "--reason"));
    }

    #[test]
    fn a_ttl_or_role_that_makes_no_sense_is_bad_configuration() {
        let dir = tempfile::tempdir().unwrap();
        let environment = BTreeMap::from([(ENV_STATE_DIR, dir.path().to_str().unwrap())]);
        DevIssuer::load_or_create(dir.path()).unwrap();
        for bad in [
            TokenArgs { ttl: Some("soon".into()), ..args() },
            TokenArgs { ttl: Some("25h".into()), ..args() },
            TokenArgs { ttl: Some("0s".into()), ..args() },
            TokenArgs { admin: true, role: "root".into(), ..args() },
        ] {
            assert!(matches!(mint(&bad, &environment), Err(Failure::Configuration(_))), "{bad:?}");
        }
    }
}
