//! Agent cards for their readers: the compiled card with the skills that the reader may see, signed.
//!
//! Owns: the choice of skills, and the interfaces of gRPC, whose address depends on other servers. Refuses: to write the rest of a
//! card, which the registry compiles. Keeps true: a card names gRPC only where it reaches the server; a card and a call agree
//! (I-10): a caller sees the skills that it may call; a reader who is not known sees those that a caller of any org sees unless
//! that org's policy says otherwise, so none of a server that orgs have to enable. `skills` is there even if it is empty, because
//! clients of 0.3 refuse a card without it.

use std::sync::Arc;

use asp_a2a::Generation;
use asp_a2a::card::{Algorithm, CardSigner};
use asp_call::digest;
use asp_edge::Caller;
use asp_identity::minting::{CardAlgorithm, CardSigningKey};
use asp_json::{Json, Members};
use asp_pipeline::pipeline::entitlement::{ServerView, anonymous};
use asp_proto::snapshot::{AuthScheme, Protocol};
use asp_snapshot::{ListedPrimitive, Snapshot, VirtualServer};
use serde_json::{Value, json};

use super::extensions;
use crate::replica::Replica;

/// Path of the public keys of cards below the platform's public URL. They are not among the keys of tokens: no service is to
/// accept a token by a key that rests in the database.
pub const KEYS: &str = "/.well-known/agent-card-jwks.json";

/// Returns the signed card of a server for its caller, or for anybody; `None` if the server is no agent, or hidden from the
/// caller. It is unsigned while there is no key.
pub async fn card_for(
    gateway: &Replica,
    snapshot: &Snapshot,
    server: &VirtualServer,
    caller: Option<&Caller>,
) -> Option<Json> {
    Some(ReaderCard::of(gateway, snapshot, server, caller).await?.signed(gateway))
}

/// Whether callers of the server can request a card of their own.
pub fn has_extended_card(server: &VirtualServer) -> bool {
    !server.accepts(AuthScheme::None)
}

/// A card for one reader, and the keys that sign it.
pub(crate) struct ReaderCard {
    card: Json,
    keys: Vec<Arc<CardSigningKey>>,
}

impl ReaderCard {
    pub(crate) async fn of(
        gateway: &Replica,
        snapshot: &Snapshot,
        server: &VirtualServer,
        caller: Option<&Caller>,
    ) -> Option<ReaderCard> {
        let text = server.message.a2a_card.replace("${public_url}", &gateway.config.public_url);
        let compiled = Json::parse(text.as_bytes()).ok()?;
        let mut card = Members::of(&compiled);
        if let Some(address) = snapshot.edge.agent_address(&server.message.name) {
            put_grpc(&mut card, compiled.view(), &address);
        }
        card.insert("skills", skills(gateway, snapshot, server, caller)?);
        let mut capabilities = card.get("capabilities").map(Members::of).unwrap_or_default();
        if gateway.push.is_some() {
            capabilities.insert("pushNotifications", true);
        }
        capabilities.insert("extensions", extensions::all_of(capabilities.get("extensions")));
        card.insert("capabilities", capabilities.to_json());
        Some(ReaderCard { card: card.to_json(), keys: gateway.card_keys.signers().await })
    }

    /// Returns the entity tag, without its quotes. It is a weak one: every signature of ES256 differs.
    pub(crate) fn tag(&self) -> String {
        let kids = self.keys.iter().map(|key| key.public().kid());
        let parts: Vec<&str> = ["agent card", self.card.text()].into_iter().chain(kids).collect();
        digest::shortened(&parts).iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Returns the card with a signature by each key.
    pub(crate) fn signed(&self, gateway: &Replica) -> Json {
        let jku = format!("{}{KEYS}", gateway.config.public_url);
        let sign = |key: &Arc<CardSigningKey>| {
            let key = key.clone();
            move |message: &[u8]| key.signature(message).ok()
        };
        let signatures: Vec<_> = self.keys.iter().map(sign).collect();
        let signers = self.keys.iter().zip(&signatures).map(|(key, sign)| CardSigner {
            algorithm: match key.public().algorithm() {
                CardAlgorithm::Es256 => Algorithm::Es256,
                CardAlgorithm::EdDsa => Algorithm::EdDsa,
            },
            kid: key.public().kid(),
            jku: Some(&jku),
            sign,
        });
        let signers: Vec<CardSigner<'_>> = signers.collect();
        asp_a2a::card::sign(&self.card, &signers).unwrap_or_else(|error| {
            tracing::warn!(%error, "agent card is served unsigned, and clients that verify it refuse it");
            self.card.clone()
        })
    }
}

/// Adds the interfaces of gRPC, each after the others of its version.
fn put_grpc(card: &mut Members, compiled: &Value, address: &str) {
    let listed = |name: &str| compiled.get(name).and_then(Value::as_array).cloned().unwrap_or_default();
    let (interfaces, mut transports) = (listed("supportedInterfaces"), listed("additionalInterfaces"));
    let of = |generation: Generation| {
        let version = json!(generation.as_str());
        let mut found = interfaces.clone();
        found.retain(|interface| interface.get("protocolVersion") == Some(&version));
        found.push(json!({"url": address, "protocolBinding": "GRPC", "protocolVersion": version}));
        found
    };
    card.insert("supportedInterfaces", Value::from([of(Generation::V10), of(Generation::V03)].concat()));
    transports.push(json!({"url": address, "transport": "GRPC"}));
    card.insert("additionalInterfaces", Value::from(transports));
}

/// Returns the skills that the reader may see, in list order; `None` if the server is hidden from the caller.
fn skills(
    gateway: &Replica,
    snapshot: &Snapshot,
    server: &VirtualServer,
    caller: Option<&Caller>,
) -> Option<Json> {
    let nobody = anonymous();
    let mut view = ServerView::of(snapshot, server, caller.unwrap_or(&nobody), Protocol::A2a);
    if caller.is_some() && view.is_hidden() {
        return None;
    }
    let listed = server.entries.iter().filter(|entry| !entry.listing.a2a_skill.is_empty());
    let seen = listed.filter(|entry| view.shows(entry) && gateway.pipeline.offers(server, entry));
    let skills: Vec<String> = seen.map(|entry| skill(entry)).collect();
    Some(Json::part(format!("[{}]", skills.join(","))))
}

/// Returns the text of a skill under the id that the server lists.
pub(super) fn skill(entry: &ListedPrimitive) -> String {
    let mut skill = Members::of(&Json::part(entry.primitive.a2a_skill.as_str()));
    skill.insert("id", entry.listing.a2a_skill.as_str());
    skill.to_json().text().to_owned()
}
