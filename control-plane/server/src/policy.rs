//! Converts stored policy records to their form in a snapshot.
//!
//! Pure. Records come from the store and were validated when written. The caller decides what to do about a record that
//! no longer parses ([`crate::catalog`]), except for revocations, which are never left out.

use asp_edge::{LEEWAY_SECONDS, MACHINE_ISSUER};
use asp_proto::snapshot::{
    Binding, EdgeSnapshot, Limit, MachineCertificate, MachineKey, Protocol, RecentRevocations, RevokedBefore,
    RevokedToken, TargetKind,
};
use asp_store::control::{
    BindingRecord, CONCURRENCY, CertificateName, FIXED_WINDOW, LimitRecord, MachineCertificateRecord,
    MachineKeyRecord, RevocationRecord, SLIDING_WINDOW, TOKEN_BUCKET,
};
use sha2::{Digest, Sha256};

pub mod decisions;
pub mod limit_line;
pub mod overlap;
pub mod refill;
pub mod replay;
pub mod when;
pub mod window;

/// Type of a target that is a machine.
pub const MACHINE: &str = "machine";
/// Issuer of a target that explicitly means callers of every issuer.
pub const EVERY_ISSUER: &str = "*";
/// Kind of a revocation record that blocks a user of an org: every token, also those issued later, until it is deleted.
pub const BLOCK_USER: &str = "block_user";
/// Kind of a revocation record that blocks an org.
pub const BLOCK_ORG: &str = "block_org";
/// Kind of a revocation record that ends links: of a provider, or of a user at it (`provider/user`).
pub const LINKED_TOKEN: &str = "linked_token";
/// Maximum size, in bytes, of the reason of a user's or org's revocation in a snapshot.
const MAX_SHOWN_REASON: usize = 200;
/// The same for a token. Each revocation sends the whole recent list, which has up to about a thousand tokens.
const MAX_REASON_OF_TOKEN: usize = 64;
/// Random bytes in the id of a machine's key or certificate; the id has twice as many hex digits.
pub const KEY_ID_BYTES: usize = 8;

/// A value in a stored record that this version does not know.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{what} `{value}` is not known")]
pub struct UnknownValue {
    pub what: &'static str,
    pub value: String,
}

fn unknown<T>(what: &'static str, value: &str) -> Result<T, UnknownValue> {
    Err(UnknownValue { what, value: value.to_owned() })
}

/// Parses `mcp`, `a2a` or `rest`.
pub fn protocol(text: &str) -> Result<Protocol, UnknownValue> {
    match text {
        "mcp" => Ok(Protocol::Mcp),
        "a2a" => Ok(Protocol::A2a),
        "rest" => Ok(Protocol::Rest),
        other => unknown("protocol", other),
    }
}

/// Parses a protocol, or `*` for every protocol.
pub fn protocol_or_any(text: &str) -> Result<Protocol, UnknownValue> {
    if text == "*" { Ok(Protocol::Unspecified) } else { protocol(text) }
}

/// Parses `user`, `machine`, `wcit` or `group`; a machine is a user of the machines' issuer.
pub fn target_kind(text: &str) -> Result<TargetKind, UnknownValue> {
    match text {
        "user" | MACHINE => Ok(TargetKind::User),
        "wcit" => Ok(TargetKind::Wcit),
        "group" => Ok(TargetKind::Group),
        other => unknown("target type", other),
    }
}

/// Whether a target names a user or group without its issuer: the same name at another issuer may be someone else.
pub fn leaves_issuer_open(kind: &str, target: &str, issuer: &str) -> bool {
    kind != MACHINE && target != "*" && issuer.is_empty()
}

/// Converts a binding. One with a condition or an approval is marked as a denial for readers that do not know these
/// (`snapshot.proto`).
pub fn binding(record: &BindingRecord) -> Result<Binding, UnknownValue> {
    let Ok(when) = when::to_gateway_form(&record.when) else { return unknown("condition", &record.when) };
    let issuer = match (record.target_type.as_str(), record.issuer.as_str()) {
        (MACHINE, "") => MACHINE_ISSUER,
        (MACHINE, issuer) => return unknown("issuer of a machine", issuer),
        (_, EVERY_ISSUER) => "",
        (_, issuer) => issuer,
    };
    Ok(Binding {
        org: record.org.clone(),
        target_kind: target_kind(&record.target_type)?.into(),
        target: record.target.clone(),
        primitive: record.primitive.clone(),
        protocol: protocol_or_any(&record.protocol)?.into(),
        allowed: record.allowed && when.is_empty() && !record.approval,
        when,
        approval: record.approval && record.approvers.is_empty(),
        name: record.name.clone(),
        issuer: issuer.to_owned(),
        approvers: record.approvers.clone(),
        approvers_issuer: record.approvers_issuer.clone(),
    })
}

pub fn limit(org: &str, record: &LimitRecord) -> Result<Limit, UnknownValue> {
    let Ok(refill_per_second) = refill::parse(&record.refill) else {
        return unknown("refill", &record.refill);
    };
    let LimitRecord { user, issuer, machine, .. } = record;
    let (user, issuer) = match (machine.as_str(), user.as_str(), issuer.as_str()) {
        ("*", user, "*") => (user, ""),
        ("*", user, issuer) => (user, issuer),
        (machine, "*", "*") => (machine, MACHINE_ISSUER),
        (machine, ..) => return unknown("limit of a user and the machine", machine),
    };
    let window = u32::try_from(record.window_seconds).unwrap_or(u32::MAX);
    let (fixed_window_seconds, sliding_window_seconds, concurrent) = match (record.kind.as_str(), window) {
        (TOKEN_BUCKET, _) => (0, 0, false),
        (FIXED_WINDOW, 1..) => (window, 0, false),
        (SLIDING_WINDOW, 1..) => (0, window, false),
        (CONCURRENCY, _) => (0, 0, true),
        (kind, _) => return unknown("limit of the type", kind),
    };
    Ok(Limit {
        org: org.to_owned(),
        server: record.server.clone(),
        primitive: record.primitive.clone(),
        user: user.to_owned(),
        issuer: issuer.to_owned(),
        wcit: record.wcit.clone(),
        capacity: record.capacity,
        refill_per_second,
        observe: record.observe,
        group: if record.group == "*" { String::new() } else { record.group.clone() },
        fixed_window_seconds,
        sliding_window_seconds,
        concurrent,
    })
}

/// Converts a machine's key to the form that gateways compare.
pub fn machine_key(record: &MachineKeyRecord) -> Result<MachineKey, UnknownValue> {
    let Some(hash) = sha256(&record.hash) else { return unknown("hash of a machine's key", &record.id) };
    Ok(MachineKey {
        id: record.id.clone(),
        hash,
        org: record.org.clone(),
        user: record.machine.clone(),
        groups: record.groups.clone(),
        scopes: record.scopes.clone(),
        issued_at: made_at(record.created_at),
        expires_at: record.expires_at / 1_000,
    })
}

/// Converts a machine's certificate to the form that gateways compare.
pub fn machine_certificate(record: &MachineCertificateRecord) -> Result<MachineCertificate, UnknownValue> {
    let (fingerprint, uri) = match &record.name {
        CertificateName::Fingerprint(hash) => (sha256(hash), String::new()),
        CertificateName::Uri(uri) => (Some(Vec::new()), uri.clone()),
    };
    let Some(fingerprint) = fingerprint else {
        return unknown("fingerprint of a machine's certificate", &record.id);
    };
    Ok(MachineCertificate {
        id: record.id.clone(),
        fingerprint,
        uri,
        proved: record.proved,
        org: record.org.clone(),
        user: record.machine.clone(),
        groups: record.groups.clone(),
        scopes: record.scopes.clone(),
        issued_at: made_at(record.created_at),
        expires_at: record.expires_at / 1_000,
    })
}

/// Decodes a SHA-256 hash in hex.
fn sha256(hex: &str) -> Option<Vec<u8>> {
    let digits = hex.as_bytes().as_chunks::<2>().0.iter();
    let byte = |digits: &[u8; 2]| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok();
    digits.map(byte).collect::<Option<Vec<u8>>>().filter(|hash| hash.len() == 32)
}

/// Returns the issuers to which a revoked jti without an issuer may belong. One in the form of a machine's key or
/// certificate id may also belong to the machines' issuer.
pub fn issuers_of_jti<'a>(jti: &str, issuers: &'a [String]) -> impl Iterator<Item = &'a str> + use<'a> {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let is_key = jti.len() == 2 * KEY_ID_BYTES && jti.bytes().all(is_digit);
    issuers.iter().map(String::as_str).chain(is_key.then_some(MACHINE_ISSUER))
}

/// Revocations in the form that the edge compares.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct RevocationEntries {
    /// Entries for `EdgeSnapshot.revoked`, in no order.
    pub tokens: Vec<[u8; 16]>,
    pub before: Vec<RevokedBefore>,
    /// Ids of records of a type that this version does not know. Instead, every token of their org up to their time is
    /// revoked.
    pub unknown: Vec<String>,
}

/// Compiles the revocations that are live at `now_ms`. `issuers` are the `iss` values for which a jti without an issuer
/// is revoked. A revocation recorded by an org only affects tokens of that org: any issuer chooses its jtis freely, and
/// one org must not be able to revoke another's tokens by guessing.
pub fn revoked<'a>(
    records: impl IntoIterator<Item = &'a RevocationRecord>,
    issuers: &[String],
    now_ms: u64,
) -> RevocationEntries {
    let mut revoked = RevocationEntries::default();
    for record in records.into_iter().filter(|record| record.until > now_ms) {
        match record.kind.as_str() {
            "token" if record.issuer.is_empty() => {
                let hit = issuers_of_jti(&record.target, issuers);
                revoked.tokens.extend(hit.map(|iss| token_entry(iss, &record.org, &record.target)));
            }
            "token" => revoked.tokens.push(token_entry(&record.issuer, &record.org, &record.target)),
            "token_hash" => revoked.tokens.push(hash_entry(&record.org, &record.target)),
            "user" => revoked.before.push(before(&record.org, &record.target, record)),
            "org" => revoked.before.push(before(&record.target, "", record)),
            BLOCK_USER => revoked.before.push(block(&record.org, &record.target, record)),
            BLOCK_ORG => revoked.before.push(block(&record.target, "", record)),
            // It ends links, and no token of the platform.
            LINKED_TOKEN => {}
            _ => {
                revoked.unknown.push(record.id.clone());
                if !record.org.is_empty() {
                    let unexplained = RevocationRecord { reason: String::new(), ..record.clone() };
                    revoked.before.push(before(&record.org, "", &unexplained));
                }
            }
        }
    }
    revoked
}

/// Returns the details of each revoked token, in no order, for the callers that present them.
pub fn token_details<'a>(
    records: impl IntoIterator<Item = &'a RevocationRecord>,
    issuers: &[String],
) -> Vec<RevokedToken> {
    let details = |record: &RevocationRecord| {
        let reason = shown_reason(&record.reason, MAX_REASON_OF_TOKEN).to_owned();
        let detail = |entry: [u8; 16]| RevokedToken {
            entry: entry.to_vec(),
            since_ms: record.created_at,
            reason: reason.clone(),
        };
        revoked([record], issuers, 0).tokens.into_iter().map(detail).collect::<Vec<_>>()
    };
    records.into_iter().flat_map(details).collect()
}

/// The properties of a token by which revocations match it.
pub struct PresentedToken<'a> {
    pub iss: &'a str,
    pub jti: &'a str,
    /// Org of the token; "" if it has none.
    pub org: &'a str,
    pub user: &'a str,
    /// Time of issue, in Unix seconds.
    pub issued_at: u64,
    pub compact: &'a str,
}

/// Revocations in the form of an edge snapshot.
#[derive(Clone, Copy)]
pub struct RevokedList<'a> {
    /// Entries in the form of `EdgeSnapshot.revoked`.
    pub tokens: &'a [u8],
    pub before: &'a [RevokedBefore],
}

impl<'a> From<&'a EdgeSnapshot> for RevokedList<'a> {
    fn from(edge: &'a EdgeSnapshot) -> RevokedList<'a> {
        RevokedList { tokens: &edge.revoked, before: &edge.revoked_before }
    }
}

impl<'a> From<&'a RecentRevocations> for RevokedList<'a> {
    fn from(recent: &'a RecentRevocations) -> RevokedList<'a> {
        RevokedList { tokens: &recent.revoked, before: &recent.revoked_before }
    }
}

/// Whether one of these lists revokes a token: by its jti, its hash, its user or its org.
pub fn is_revoked(lists: &[RevokedList<'_>], token: &PresentedToken<'_>) -> bool {
    let hash: String = Sha256::digest(token.compact).iter().map(|byte| format!("{byte:02x}")).collect();
    let mut wanted = vec![token_entry(token.iss, "", token.jti), hash_entry("", &hash)];
    if !token.org.is_empty() {
        wanted.extend([token_entry(token.iss, token.org, token.jti), hash_entry(token.org, &hash)]);
    }
    let too_early = |entry: &RevokedBefore| {
        entry.org == token.org
            && (entry.user == token.user || entry.user.is_empty())
            && token.issued_at <= entry.not_after_iat
    };
    lists.iter().any(|list| has_any(list, &wanted) || list.before.iter().any(too_early))
}

/// Whether every token of an org with this id is revoked: by its jti, from one of the issuers, or by the hash, if the
/// id is one.
pub fn is_token_revoked(lists: &[RevokedList<'_>], issuers: &[String], (org, wcit): (&str, &str)) -> bool {
    let by_jti = issuers.iter().flat_map(|iss| ["", org].map(|org| token_entry(iss, org, wcit)));
    let wanted: Vec<[u8; 16]> = by_jti.chain(["", org].map(|org| hash_entry(org, wcit))).collect();
    lists.iter().any(|list| has_any(list, &wanted))
}

/// Whether tokens of the user, or of all users in the org, are revoked if issued up to some time.
pub fn is_revoked_before(lists: &[RevokedList<'_>], org: &str, user: &str) -> bool {
    let concerns = |entry: &RevokedBefore| entry.org == org && (entry.user.is_empty() || entry.user == user);
    lists.iter().any(|list| list.before.iter().any(concerns))
}

/// Whether the user, or the whole org, is blocked.
pub fn is_blocked(lists: &[RevokedList<'_>], org: &str, user: &str) -> bool {
    let blocks = |entry: &RevokedBefore| {
        entry.block && entry.org == org && (entry.user.is_empty() || entry.user == user)
    };
    lists.iter().any(|list| list.before.iter().any(blocks))
}

fn has_any(list: &RevokedList<'_>, wanted: &[[u8; 16]]) -> bool {
    let (entries, _) = list.tokens.as_chunks::<16>();
    wanted.iter().any(|entry| entries.binary_search(entry).is_ok())
}

/// Returns the entry of a token id; `org` "" stands for every org.
fn token_entry(iss: &str, org: &str, jti: &str) -> [u8; 16] {
    match org {
        "" => entry(&["token", iss, jti]),
        org => entry(&["org_token", iss, org, jti]),
    }
}

fn hash_entry(org: &str, hash: &str) -> [u8; 16] {
    match org {
        "" => entry(&["token_hash", hash]),
        org => entry(&["org_token_hash", org, hash]),
    }
}

/// Returns the first 16 bytes of SHA-256 over the parts, separated by NUL (`snapshot.proto`, `revoked`).
fn entry(parts: &[&str]) -> [u8; 16] {
    let digest = Sha256::digest(parts.join("\0").as_bytes());
    let mut first = [0_u8; 16];
    for (slot, byte) in first.iter_mut().zip(digest) {
        *slot = byte;
    }
    first
}

/// Builds an entry for all tokens issued up to the revocation. A token issued before it may have an `iat` up to
/// [`LEEWAY_SECONDS`] later, because of its issuer's clock.
fn before(org: &str, user: &str, record: &RevocationRecord) -> RevokedBefore {
    RevokedBefore {
        org: org.to_owned(),
        user: user.to_owned(),
        not_after_iat: (record.created_at / 1_000).saturating_add(LEEWAY_SECONDS),
        since_ms: record.created_at,
        reason: shown_reason(&record.reason, MAX_SHOWN_REASON).to_owned(),
        block: false,
    }
}

/// Builds an entry for every token, whenever it is issued.
fn block(org: &str, user: &str, record: &RevocationRecord) -> RevokedBefore {
    RevokedBefore { not_after_iat: u64::MAX, block: true, ..before(org, user, record) }
}

/// Returns the part of a reason that the refused caller is shown, at most `bound` bytes.
fn shown_reason(reason: &str, bound: usize) -> &str {
    reason.get(..reason.floor_char_boundary(bound)).unwrap_or_default()
}

/// Returns the issue time of a machine's key or certificate for the comparison with revocations. The platform's own
/// clock set it, so a new one is valid at once.
fn made_at(created_at_ms: u64) -> u64 {
    (created_at_ms / 1_000).saturating_add(LEEWAY_SECONDS)
}

#[cfg(test)]
mod tests;
