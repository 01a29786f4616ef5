//! Artifacts of one call: pieces of bytes become a blob, and an emission becomes a link in the result.
//!
//! Keeps true: the pieces of an artifact come in order and without gaps, and their size and digest are those
//! the plugin states; what could not be kept is said in the result, and a link to elsewhere is https. Nobody waits for
//! the store here: whoever feeds this reads on while there is room, and an emission is over before the next message.

mod upload;

use std::collections::HashMap;
use std::sync::Arc;

use asp_proto::plugin::{ArtifactData, ArtifactEmitted};
use asp_store::blobs::BlobError;
use prost::Message;
use serde_json::{Map, Value, json};

use crate::call::Call;
use crate::call::event::Event;
use crate::call::outcome::text_block;
use crate::executors::artifacts::Artifacts;
pub(super) use upload::Stored;
use upload::{Storing, Upload};

/// Most artifacts of one call, open and emitted.
const MAX_ARTIFACTS: usize = 256;
/// Longest URI and description in bytes.
const MAX_TEXT: usize = 4096;
/// Bytes of a call's artifacts that wait for the store, a piece more at most: the next write takes them together.
const MAX_WAITING: usize = 1 << 20;
/// What a plugin calls its own artifacts.
const OWN_SCHEME: &str = "report://";

/// The plugin broke the protocol.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Broken(pub &'static str);

/// What a call has emitted, over all its workers.
#[derive(Default)]
pub(super) struct Emitted {
    items: Vec<Item>,
}

struct Item {
    /// As the plugin calls it.
    own_uri: String,
    /// As the caller reads it.
    uri: String,
    /// As the primitive's artifact schema describes it.
    described: Value,
    /// What the result holds of it.
    block: Value,
}

impl Emitted {
    pub(super) fn kept(&self) -> Vec<EmittedItem> {
        let kept = |item: &Item| EmittedItem {
            own_uri: item.own_uri.clone(),
            uri: item.uri.clone(),
            described: item.described.to_string(),
            block: item.block.to_string(),
        };
        self.items.iter().map(kept).collect()
    }

    /// What was [`Emitted::kept`]; an item that does not read is left out.
    pub(super) fn restored(kept: Vec<EmittedItem>) -> Emitted {
        let item = |kept: EmittedItem| {
            let described = serde_json::from_str(&kept.described).ok()?;
            let block = serde_json::from_str(&kept.block).ok()?;
            Some(Item { own_uri: kept.own_uri, uri: kept.uri, described, block })
        };
        Emitted { items: kept.into_iter().filter_map(item).take(MAX_ARTIFACTS).collect() }
    }

    pub(super) fn clear(&mut self) {
        self.items.clear();
    }

    /// The blocks of the result, in the order of emission.
    pub(super) fn blocks(&self) -> Vec<Value> {
        self.items.iter().map(|item| item.block.clone()).collect()
    }

    /// Public URIs by the plugin's own.
    pub(super) fn uris(&self) -> HashMap<String, String> {
        self.items.iter().map(|item| (item.own_uri.clone(), item.uri.clone())).collect()
    }

    /// The list that the primitive's artifact schema describes.
    pub(super) fn described(&self) -> Value {
        self.items.iter().map(|item| item.described.clone()).collect()
    }

    /// A worker that took over emits again what it does again.
    fn put(&mut self, item: Item) -> Result<(), Broken> {
        let full = self.items.len() >= MAX_ARTIFACTS;
        match self.items.iter_mut().find(|known| known.own_uri == item.own_uri) {
            Some(known) => *known = item,
            None if full => return Err(Broken("too many artifacts")),
            None => self.items.push(item),
        }
        Ok(())
    }
}

/// What one worker is sending.
pub(super) struct Receiving {
    artifacts: Artifacts,
    call: Arc<Call>,
    open: HashMap<String, Upload>,
    /// The artifact whose bytes have all come and are not all kept.
    emitting: Option<(ArtifactEmitted, Upload)>,
    storing: Option<Storing>,
}

impl Receiving {
    pub(super) fn new(artifacts: Artifacts, call: Arc<Call>) -> Receiving {
        Receiving { artifacts, call, open: HashMap::new(), emitting: None, storing: None }
    }

    /// Whether the worker may say more.
    pub(super) fn has_room(&self) -> bool {
        self.emitting.is_none() && self.open.values().map(Upload::waiting).sum::<usize>() < MAX_WAITING
    }

    pub(super) fn is_storing(&self) -> bool {
        self.storing.is_some()
    }

    /// A piece of bytes.
    pub(super) fn piece(&mut self, piece: &ArtifactData) -> Result<(), Broken> {
        if !self.open.contains_key(&piece.uri) {
            if self.open.len() >= MAX_ARTIFACTS || piece.uri.len() > MAX_TEXT {
                return Err(Broken("too many artifacts"));
            }
            self.open.insert(piece.uri.clone(), Upload::default());
        }
        if let Some(upload) = self.open.get_mut(&piece.uri) {
            upload.take(piece)?;
        }
        self.go_on();
        Ok(())
    }

    /// An emission: the end of an artifact's bytes, or a link to elsewhere.
    pub(super) fn emit(&mut self, emitted: &mut Emitted, artifact: ArtifactEmitted) -> Result<(), Broken> {
        let texts = [&artifact.uri, &artifact.description, &artifact.content_type, &artifact.r#type];
        if texts.iter().any(|text| text.len() > MAX_TEXT) {
            return Err(Broken("an artifact's description is too long"));
        }
        let upload = match self.open.remove(&artifact.uri) {
            Some(upload) => upload,
            None if artifact.uri.starts_with(OWN_SCHEME) => Upload::default(),
            None if artifact.uri.starts_with("https://") => {
                let uri = artifact.uri.clone();
                return self.tell(emitted, artifact, uri);
            }
            None => return Err(Broken("an artifact that is neither sent nor an https link")),
        };
        upload.check(&artifact)?;
        self.emitting = Some((artifact, upload));
        self.go_on();
        Ok(())
    }

    /// What the store has done next. May be dropped while it waits.
    pub(super) async fn stored(&mut self) -> Stored {
        match &mut self.storing {
            Some(storing) => {
                let stored = storing.await;
                self.storing = None;
                stored
            }
            None => std::future::pending().await,
        }
    }

    /// Takes what the store has done, and gives it the next thing.
    pub(super) fn take(&mut self, emitted: &mut Emitted, stored: Stored) -> Result<(), Broken> {
        let told = match stored {
            Stored::Written { own_uri, incoming } => {
                let emitting = self.emitting.as_mut().filter(|(artifact, _)| artifact.uri == own_uri);
                let upload = emitting.map(|(_, upload)| upload);
                if let Some(upload) = upload.or_else(|| self.open.get_mut(&own_uri)) {
                    upload.written(incoming);
                }
                Ok(())
            }
            Stored::Kept(kept) => match self.emitting.take() {
                Some((artifact, _)) => self.kept(emitted, artifact, kept),
                None => Ok(()),
            },
        };
        self.go_on();
        told
    }

    /// Gives the store something to do, unless it is at something or there is nothing.
    fn go_on(&mut self) {
        if self.storing.is_some() {
            return;
        }
        let Receiving { artifacts, call, open, emitting, storing } = self;
        if let Some((artifact, upload)) = emitting {
            *storing = upload.write(&artifact.uri, artifacts, call);
            if storing.is_none() {
                *storing = upload.keep(artifact, artifacts, call);
            }
            return;
        }
        *storing = open.iter_mut().find_map(|(own_uri, upload)| upload.write(own_uri, artifacts, call));
    }

    fn kept(
        &self,
        emitted: &mut Emitted,
        artifact: ArtifactEmitted,
        kept: Result<String, BlobError>,
    ) -> Result<(), Broken> {
        let error = match kept {
            Ok(uri) => return self.tell(emitted, artifact, uri),
            Err(error) => error,
        };
        tracing::warn!(call = %self.call.id, trace = %self.call.trace, %error, "an artifact of a plugin call was not kept, and the call's result says so; check the artifact store, or the bounds that the error names");
        let why = match error {
            BlobError::TooLarge | BlobError::Quota => error.to_string(),
            BlobError::Unavailable(_) => "the store is not available".to_owned(),
        };
        let name = name_of(&artifact.uri);
        let block = text_block(&format!("The artifact {name} was not kept: {why}."));
        let described = describe(&artifact, &artifact.uri);
        emitted.put(Item { own_uri: artifact.uri.clone(), uri: artifact.uri, described, block })
    }

    /// Tells the caller of an artifact that is to be had at `uri`.
    fn tell(&self, emitted: &mut Emitted, artifact: ArtifactEmitted, uri: String) -> Result<(), Broken> {
        self.call.emit(Event::Artifact {
            uri: uri.clone(),
            content_type: given(&artifact.content_type),
            description: given(&artifact.description),
        });
        let described = describe(&artifact, &uri);
        let block = link(&artifact, name_of(&artifact.uri), &uri);
        emitted.put(Item { own_uri: artifact.uri, uri, described, block })
    }
}

/// `report://<task>/<name>` and `https://host/path/<name>`: what follows the last slash.
fn name_of(uri: &str) -> &str {
    let path = uri.split(['?', '#']).next().unwrap_or_default();
    path.rsplit('/').find(|part| !part.is_empty()).unwrap_or("artifact")
}

fn given(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

/// As the primitive's artifact schema names the members.
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

/// An MCP resource link (2025-06-18 and later).
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
    #[prost(string, tag = "1")]
    pub own_uri: String,
    #[prost(string, tag = "2")]
    pub uri: String,
    #[prost(string, tag = "3")]
    pub described: String,
    #[prost(string, tag = "4")]
    pub block: String,
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
