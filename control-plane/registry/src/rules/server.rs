//! Rules of `server.yaml`.

use asp_edge::names;

use super::{name, uri};
use crate::fault::FaultCode;
use crate::findings::Findings;
use crate::server_file::{Card, DefaultExposure, Protocol, ServerFile};
use crate::spec::Scheme;

/// Maximum number of primitives of a server: every list call sends all of them, and beyond this a server should be
/// split.
pub const MAX_PRIMITIVES: usize = 1_000;
const MAX_LIST: usize = 256;
const MAX_OFFERED: usize = 1_000;
/// Maximum number of extensions in a card. A client names in one header those that it activates.
const MAX_EXTENSIONS: usize = 16;
/// Maximum length of their URIs, in bytes.
const MAX_URI: usize = 512;
/// Placeholder for the platform's public URL, which the gateway replaces.
const PUBLIC_URL: &str = "${public_url}";

/// Checks the server of `folder`.
pub(crate) fn check_server(file: &ServerFile, folder: &str, findings: &mut Findings<'_>) {
    if !names::is_label(&file.name) || file.name != folder {
        let message = format!("the server `{}` is in the folder `{folder}`", name::escape(&file.name));
        let hint = "use 1 to 63 of a-z 0-9 - and give folder and server the same name";
        findings.add(FaultCode::BadServerName, "/name", message, hint);
    }
    if file.name == names::ALL_SERVERS {
        let message =
            format!("the name `{}` is reserved: /all/mcp leads to the tools of all servers", file.name);
        findings.add(FaultCode::BadServerName, "/name", message, "give the server another name");
    }
    if let Some(version) = &file.version {
        name::check_version(version, findings);
    }
    check_auth(file, findings);
    check_offers(file, findings);
    check_hosts(file, findings);
    check_pool(file.pool.as_deref(), "/pool", findings);
    check_card(&file.card, findings);
    check_lists(file, findings);
    let speaks_a2a = file.protocols.contains(&Protocol::A2a);
    if speaks_a2a && file.description.is_none() && file.card.description.is_none() {
        let hint = "add `description`: agents choose by it";
        findings.add(FaultCode::NoSummary, "/description", "the agent card has no description", hint);
    }
}

fn check_auth(file: &ServerFile, findings: &mut Findings<'_>) {
    let auth = &file.auth;
    let has = |scheme| auth.schemes.contains(&scheme);
    if has(Scheme::None) && auth.schemes.len() > 1 {
        let message = "`none` next to another scheme lets every caller skip authentication";
        findings.add(FaultCode::AuthConflict, "/auth/schemes", message, "remove `none` or the others");
    }
    if auth.schemes == [Scheme::None] && !(auth.scopes.is_empty() && auth.issuers.is_empty()) {
        let message = "callers without authentication have no scopes and no issuer";
        findings.add(FaultCode::AuthConflict, "/auth/schemes", message, "remove `scopes` and `issuers`");
    }
    if (has(Scheme::Jwt) || has(Scheme::Opaque)) && auth.issuers.is_empty() {
        let hint = "name the issuers whose tokens are accepted";
        findings.add(
            FaultCode::AuthConflict,
            "/auth/issuers",
            "tokens are accepted only from listed issuers, and none is listed",
            hint,
        );
    }
    if !has(Scheme::Jwt) && !has(Scheme::Opaque) && !has(Scheme::None) && !auth.issuers.is_empty() {
        let hint = "add jwt or opaque to `schemes`, or remove `issuers`";
        let message = "issuers without the scheme jwt or opaque";
        findings.add(FaultCode::AuthConflict, "/auth/issuers", message, hint);
    }
    for (index, issuer) in auth.issuers.iter().enumerate() {
        if !name::is_name(issuer) {
            let path = format!("/auth/issuers/{index}");
            let message = format!("`{}` is not an issuer name", name::escape(issuer));
            findings.add(FaultCode::BadValue, &path, message, "use the name the operator gave the issuer");
        }
    }
    name::check_scopes(&auth.scopes, "/auth/scopes", findings);
    for (index, audience) in auth.audiences.iter().enumerate() {
        let fits =
            (1..=512).contains(&audience.len()) && audience.bytes().all(|byte| byte.is_ascii_graphic());
        if !fits {
            let path = format!("/auth/audiences/{index}");
            let hint = "write the exact `aud` value, 1 to 512 visible ASCII characters";
            findings.add(FaultCode::BadValue, &path, "not an audience", hint);
        }
    }
}

/// Checks the orgs that a server is offered to. They are names: patterns are rejected.
fn check_offers(file: &ServerFile, findings: &mut Findings<'_>) {
    if file.default_exposure == DefaultExposure::Allow && !file.offered_to.is_empty() {
        let message = "`defaultExposure: allow` offers the server to every organisation";
        let hint = "remove `offeredTo`, or write `defaultExposure: deny` to offer it to these alone";
        findings.add(FaultCode::BadValue, "/offeredTo", message, hint);
    }
    for (index, org) in file.offered_to.iter().enumerate() {
        if !names::is_name(org) || org.contains('*') {
            let path = format!("/offeredTo/{index}");
            let message = format!("`{}` is not an organisation", name::escape(org));
            findings.add(FaultCode::BadValue, &path, message, "write its name as tokens have it, no pattern");
        }
    }
}

fn check_hosts(file: &ServerFile, findings: &mut Findings<'_>) {
    for (index, host) in file.hosts.iter().enumerate() {
        if let Err(reason) = uri::host_of(host) {
            let hint = "write host or host:port";
            findings.add(FaultCode::BadHost, &format!("/hosts/{index}"), reason, hint);
        }
    }
    for (index, origin) in file.origins.iter().enumerate() {
        if !uri::is_origin(origin) {
            let path = format!("/origins/{index}");
            let message = format!("`{}` is not a web origin", name::escape(origin));
            let hint = "write scheme://host[:port] in lower case, nothing after it, no wildcard";
            findings.add(FaultCode::BadOrigin, &path, message, hint);
        }
    }
}

/// Checks the name of a pool, which becomes a header's value and `ASP_POOL` of gateways.
fn check_pool(pool: Option<&str>, path: &str, findings: &mut Findings<'_>) {
    if let Some(pool) = pool
        && !names::is_label(pool)
    {
        let message = format!("`{}` is not the name of a gateway pool", name::escape(pool));
        findings.add(FaultCode::BadPool, path, message, "use 1 to 63 of a-z 0-9 -");
    }
}

fn check_card(card: &Card, findings: &mut Findings<'_>) {
    let provider = card.provider.as_ref().map(|provider| &provider.url);
    let urls = [
        ("/card/url", card.url.as_ref()),
        ("/card/provider/url", provider),
        ("/card/documentationUrl", card.documentation_url.as_ref()),
        ("/card/iconUrl", card.icon_url.as_ref()),
    ];
    for (path, url) in urls {
        let Some(url) = url else { continue };
        // The operator's public URL is checked elsewhere; any other will do to check the rest.
        let filled = match url.strip_prefix(PUBLIC_URL) {
            Some(rest) => format!("https://public.example{rest}"),
            None => url.clone(),
        };
        if let Err(reason) = uri::http_url(&filled) {
            let hint = "write an absolute https URL; it may start with `${public_url}`";
            findings.add(FaultCode::BadUrl, path, reason, hint);
        }
    }
    let modes = [
        ("defaultInputModes", &card.default_input_modes),
        ("defaultOutputModes", &card.default_output_modes),
    ];
    for (key, modes) in modes {
        for (index, mode) in modes.iter().enumerate() {
            if !is_media_type(mode) {
                let path = format!("/card/{key}/{index}");
                let message = format!("`{}` is not a media type", name::escape(mode));
                findings.add(FaultCode::BadValue, &path, message, "write type/subtype");
            }
        }
    }
    for (index, extension) in card.extensions.iter().enumerate() {
        let is_again = card.extensions.iter().take(index).any(|other| other.uri == extension.uri);
        if !is_extension(&extension.uri) || is_again {
            let path = format!("/card/extensions/{index}/uri");
            let message = format!(
                "`{}` is not the URI of an extension, or is there twice",
                name::escape(&extension.uri)
            );
            let hint = "write an absolute URI without a comma, once";
            findings.add(FaultCode::BadValue, &path, message, hint);
        }
    }
}

/// Whether a text can be an item of the header with which a client activates extensions.
fn is_extension(uri: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_graphic() && byte != b',';
    uri.len() <= MAX_URI
        && uri.bytes().all(fits)
        && uri.split_once(':').is_some_and(|(scheme, rest)| {
            scheme.starts_with(|first: char| first.is_ascii_alphabetic()) && !rest.is_empty()
        })
}

/// Whether a text is `type/subtype` without parameters (RFC 9110 section 8.3.1).
pub(super) fn is_media_type(text: &str) -> bool {
    let is_token = |part: &str| !part.is_empty() && part.bytes().all(super::proxy::is_token_byte);
    text.len() <= 128
        && text.split_once('/').is_some_and(|(kind, subtype)| is_token(kind) && is_token(subtype))
}

fn check_lists(file: &ServerFile, findings: &mut Findings<'_>) {
    let lists = [
        ("/primitives", file.primitives.len(), MAX_PRIMITIVES),
        ("/origins", file.origins.len(), MAX_LIST),
        ("/hosts", file.hosts.len(), MAX_LIST),
        ("/offeredTo", file.offered_to.len(), MAX_OFFERED),
        ("/auth/issuers", file.auth.issuers.len(), MAX_LIST),
        ("/auth/scopes", file.auth.scopes.len(), MAX_LIST),
        ("/auth/audiences", file.auth.audiences.len(), MAX_LIST),
        ("/card/extensions", file.card.extensions.len(), MAX_EXTENSIONS),
    ];
    for (path, length, limit) in lists {
        if length > limit {
            let message = format!("{length} items, the limit is {limit}");
            findings.add(FaultCode::TooMany, path, message, "split the server");
        }
    }
    for (index, listed) in file.primitives.iter().enumerate() {
        check_pool(listed.pool.as_deref(), &format!("/primitives/{index}/pool"), findings);
        if let Some(alias) = &listed.alias
            && !name::is_name(alias)
        {
            let path = format!("/primitives/{index}/as");
            let message = format!("`{}` is not an exposed name", name::escape(alias));
            let hint = "use 1 to 128 of the characters A-Z a-z 0-9 _ . -";
            findings.add(FaultCode::BadExposedName, &path, message, hint);
        }
    }
}
