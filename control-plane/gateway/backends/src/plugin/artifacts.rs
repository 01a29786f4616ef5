//! Artifacts of one call: pieces of bytes become a blob, and an emission becomes a link in the result.
//!
//! Keeps true: the pieces of an artifact arrive in order and without gaps, and their size and digest are those that
//! the plugin states; the result reports what could not be stored; an external link is https. Nothing waits for the
//! store here: the reader continues while there is room, and an emission is complete before the next message is read.

mod upload;

use std::collections::HashMap;
use std::sync::Arc;

use asp_call::call::Call;
use asp_call::call::event::Event;
use asp_call::call::outcome::text_block;
use asp_proto::plugin::{ArtifactData, ArtifactEmitted};
use asp_store::blobs::BlobError;
use prost::Message;
use serde_json::{Map, Value, json};

use crate::artifacts::Artifacts;
pub(super) use upload::StoreResult;
use upload::{StoreOperation, Upload};

/// Maximum number of artifacts of one call, open and emitted.
const MAX_ARTIFACTS: usize = 256;
/// Maximum length of a URI or description in bytes.
const MAX_TEXT: usize = 4096;
/// Maximum number of a call's artifact bytes that wait for the store, plus one piece: the next write takes them
/// together.
const MAX_WAITING: usize = 1 << 20;
/// Scheme of a plugin's own artifact URIs.
const OWN_SCHEME: &str = "report://";

/// A violation of the protocol by the plugin.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ArtifactFault(pub &'static str);

/// Artifacts that a call has emitted, over all its workers.
#[derive(Default)]
pub(super) struct EmittedArtifacts {
    items: Vec<EmittedItem>,
}

impl EmittedArtifacts {
    pub(super) fn stored_items(&self) -> Vec<EmittedItem> {
        self.items.clone()
    }

    /// Restores items from [`EmittedArtifacts::stored_items`]; an item that cannot be parsed is left out.
    pub(super) fn restored(kept: Vec<EmittedItem>) -> EmittedArtifacts {
        let is_json = |text: &str| serde_json::from_str::<Value>(text).is_ok();
        let items = kept.into_iter().filter(|item| is_json(&item.described) && is_json(&item.block));
        EmittedArtifacts { items: items.take(MAX_ARTIFACTS).collect() }
    }

    pub(super) fn clear(&mut self) {
        self.items.clear();
    }

    /// The blocks of the result, in the order of emission.
    pub(super) fn blocks(&self) -> Vec<Value> {
        self.items.iter().filter_map(|item| serde_json::from_str(&item.block).ok()).collect()
    }

    /// Public URIs by the plugin's own.
    pub(super) fn uris(&self) -> HashMap<String, String> {
        self.items.iter().map(|item| (item.own_uri.clone(), item.uri.clone())).collect()
    }

    /// The list that the primitive's artifact schema describes.
    pub(super) fn described(&self) -> Value {
        self.items.iter().filter_map(|item| serde_json::from_str::<Value>(&item.described).ok()).collect()
    }

    /// Adds an item, or replaces the one with the same URI: a worker that took over emits again what it repeats.
    fn put(&mut self, item: EmittedItem) -> Result<(), ArtifactFault> {
        let full = self.items.len() >= MAX_ARTIFACTS;
        match self.items.iter_mut().find(|known| known.own_uri == item.own_uri) {
            Some(known) => *known = item,
            None if full => return Err(ArtifactFault("too many artifacts")),
            None => self.items.push(item),
        }
        Ok(())
    }
}

/// Artifacts that one worker is sending.
pub(super) struct ArtifactReceiver {
    artifacts: Artifacts,
    call: Arc<Call>,
    open: HashMap<String, Upload>,
    /// The artifact whose bytes have all arrived and are not all stored.
    emitting: Option<(ArtifactEmitted, Upload)>,
    storing: Option<StoreOperation>,
}

impl ArtifactReceiver {
    pub(super) fn new(artifacts: Artifacts, call: Arc<Call>) -> ArtifactReceiver {
        ArtifactReceiver { artifacts, call, open: HashMap::new(), emitting: None, storing: None }
    }

    /// Whether more messages of the worker may be read.
    pub(super) fn has_room(&self) -> bool {
        self.emitting.is_none() && self.open.values().map(Upload::waiting).sum::<usize>() < MAX_WAITING
    }

    pub(super) fn is_storing(&self) -> bool {
        self.storing.is_some()
    }

    /// Accepts a piece of bytes.
    pub(super) fn piece(&mut self, piece: &ArtifactData) -> Result<(), ArtifactFault> {
        if !self.open.contains_key(&piece.uri) {
            if self.open.len() >= MAX_ARTIFACTS || piece.uri.len() > MAX_TEXT {
                return Err(ArtifactFault("too many artifacts"));
            }
            self.open.insert(piece.uri.clone(), Upload::default());
        }
        if let Some(upload) = self.open.get_mut(&piece.uri) {
            upload.take(piece)?;
        }
        self.go_on();
        Ok(())
    }

    /// Accepts an emission: the end of an artifact's bytes, or an external link.
    pub(super) fn emit(
        &mut self,
        emitted: &mut EmittedArtifacts,
        artifact: ArtifactEmitted,
    ) -> Result<(), ArtifactFault> {
        let texts = [&artifact.uri, &artifact.description, &artifact.content_type, &artifact.r#type];
        if texts.iter().any(|text| text.len() > MAX_TEXT) {
            return Err(ArtifactFault("an artifact's description is too long"));
        }
        let upload = match self.open.remove(&artifact.uri) {
            Some(upload) => upload,
            None if artifact.uri.starts_with(OWN_SCHEME) => Upload::default(),
            None if artifact.uri.starts_with("https://") => {
                let uri = artifact.uri.clone();
                return self.tell(emitted, artifact, uri);
            }
            None => return Err(ArtifactFault("an artifact without content that is not an https link")),
        };
        upload.check(&artifact)?;
        self.emitting = Some((artifact, upload));
        self.go_on();
        Ok(())
    }

    /// Waits for the next result of the store. Cancel-safe.
    pub(super) async fn stored(&mut self) -> StoreResult {
        match &mut self.storing {
            Some(storing) => {
                let stored = storing.await;
                self.storing = None;
                stored
            }
            None => std::future::pending().await,
        }
    }

    /// Processes a result of the store and starts the next operation.
    pub(super) fn take(
        &mut self,
        emitted: &mut EmittedArtifacts,
        stored: StoreResult,
    ) -> Result<(), ArtifactFault> {
        let told = match stored {
            StoreResult::Written { own_uri, incoming } => {
                let emitting = self.emitting.as_mut().filter(|(artifact, _)| artifact.uri == own_uri);
                let upload = emitting.map(|(_, upload)| upload);
                if let Some(upload) = upload.or_else(|| self.open.get_mut(&own_uri)) {
                    upload.record_write(incoming);
                }
                Ok(())
            }
            StoreResult::Kept(kept) => match self.emitting.take() {
                Some((artifact, _)) => self.report_stored(emitted, artifact, kept),
                None => Ok(()),
            },
        };
        self.go_on();
        told
    }

    /// Starts the next store operation, unless one is running or none is needed.
    fn go_on(&mut self) {
        if self.storing.is_some() {
            return;
        }
        let ArtifactReceiver { artifacts, call, open, emitting, storing } = self;
        if let Some((artifact, upload)) = emitting {
            *storing = upload.write(&artifact.uri, artifacts, call);
            if storing.is_none() {
                *storing = upload.keep(artifact, artifacts, call);
            }
            return;
        }
        *storing = open.iter_mut().find_map(|(own_uri, upload)| upload.write(own_uri, artifacts, call));
    }

    fn report_stored(
        &self,
        emitted: &mut EmittedArtifacts,
        artifact: ArtifactEmitted,
        kept: Result<String, BlobError>,
    ) -> Result<(), ArtifactFault> {
        let error = match kept {
            Ok(uri) => return self.tell(emitted, artifact, uri),
            Err(error) => error,
        };
        tracing::warn!(call = %self.call.id, trace = %self.call.trace, %error, "an artifact of a plugin call was not stored, as its result says; check the artifact store, or the bounds that the error names");
        let why = match error {
            BlobError::TooLarge | BlobError::Quota => error.to_string(),
            BlobError::Unavailable(_) => "the store is not available".to_owned(),
        };
        let name = name_of(&artifact.uri);
        let block = text_block(&format!("The artifact {name} was not stored: {why}."));
        let described = describe(&artifact, &artifact.uri).to_string();
        let uri = artifact.uri;
        emitted.put(EmittedItem { own_uri: uri.clone(), uri, described, block: block.to_string() })
    }

    /// Reports an artifact that is available at `uri` to the caller.
    fn tell(
        &self,
        emitted: &mut EmittedArtifacts,
        artifact: ArtifactEmitted,
        uri: String,
    ) -> Result<(), ArtifactFault> {
        self.call.emit(Event::Artifact {
            uri: uri.clone(),
            content_type: non_empty(&artifact.content_type),
            description: non_empty(&artifact.description),
        });
        let described = describe(&artifact, &uri).to_string();
        let block = link(&artifact, name_of(&artifact.uri), &uri).to_string();
        emitted.put(EmittedItem { own_uri: artifact.uri, uri, described, block })
    }
}

/// Returns the part after the last slash of `report://<task>/<name>` or `https://host/path/<name>`.
fn name_of(uri: &str) -> &str {
    let path = uri.split(['?', '#']).next().unwrap_or_default();
    path.rsplit('/').find(|part| !part.is_empty()).unwrap_or("artifact")
}

fn non_empty(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

/// Describes an artifact with the member names of the primitive's artifact schema.
fn describe(artifact: &ArtifactEmitted, uri: &str) -> Value {
    let mut described = Map::new();
    for (name, value) in [
        ("type", artifact.r#type.as_str()),
        ("uri", uri),
        ("contentType", artifact.content_type.as_str()),
        ("description", artifact.description.as_str()),
    ] {
        if !value.is_empty() {
            described.insert(name.into(), value.into());
        }
    }
    Value::Object(described)
}

/// Builds an MCP resource link (2025-06-18 and later).
fn link(artifact: &ArtifactEmitted, name: &str, uri: &str) -> Value {
    let mut link = json!({"type": "resource_link", "uri": uri, "name": name});
    if let Some(link) = link.as_object_mut() {
        for (member, value) in [("mimeType", &artifact.content_type), ("description", &artifact.description)]
        {
            if !value.is_empty() {
                link.insert(member.into(), value.clone().into());
            }
        }
        if artifact.size > 0 {
            link.insert("size".into(), artifact.size.into());
        }
    }
    link
}

/// One artifact; the two values as JSON text.
#[derive(Clone, PartialEq, Message)]
pub(super) struct EmittedItem {
    /// URI used by the plugin.
    #[prost(string, tag = "1")]
    own_uri: String,
    /// URI for the caller.
    #[prost(string, tag = "2")]
    uri: String,
    /// Description in the form of the primitive's artifact schema.
    #[prost(string, tag = "3")]
    described: String,
    /// Content block in the result.
    #[prost(string, tag = "4")]
    block: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_artifact_is_named_by_the_end_of_its_uri() {
        for (uri, name) in [
            ("report://T1/summary.pdf", "summary.pdf"),
            ("report://T1/a/b.csv", "b.csv"),
            ("https://example.com/x/y.png?sig=1/2#z", "y.png"),
            ("https://example.com/", "example.com"),
            ("", "artifact"),
        ] {
            assert_eq!(name_of(uri), name, "{uri}");
        }
    }
}
