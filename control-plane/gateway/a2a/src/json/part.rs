//! Parts of messages and artifacts.

use asp_json::{Json, Members};

use super::Dialect;
use super::reader::Object;
use super::writer::{self, Writer};
use crate::bounds::{MAX_NAME, MAX_PARTS, MAX_URL};
use crate::model::{Base64, Part, PartContent};

/// Member of a 0.3 data part that has a value other than an object.
const WRAPPED: &str = "value";
/// Metadata of such a part, as the official SDKs write and read it.
const WRAPPED_MARK: &str = "data_part_compat";

/// Reads the parts of a message or an artifact.
pub(super) fn read_parts(object: &Object<'_, '_>, dialect: Dialect) -> Vec<Part> {
    // REST of 0.3 says `content`; some of its clients send JSON-RPC's form.
    let name = if dialect == Dialect::Proto03 && object.has("content") { "content" } else { "parts" };
    object.objects(name, MAX_PARTS, |part| read_part(part, dialect))
}

fn read_part(part: &Object<'_, '_>, dialect: Dialect) -> Option<Part> {
    match dialect {
        Dialect::V10 => read_v10(part),
        Dialect::V03 => read_v03(part),
        Dialect::Proto03 if part.has("kind") => read_v03(part),
        Dialect::Proto03 => read_proto03(part),
    }
}

/// Returns which one of these members is there; reports none and several. `data` alone may be null, which is a value.
fn only(part: &Object<'_, '_>, names: &[&'static str]) -> Option<&'static str> {
    let found: Vec<&'static str> = names.iter().copied().filter(|name| part.has(name)).collect();
    match found.as_slice() {
        [one] => Some(*one),
        [] if names.contains(&"data") && part.member("data").is_some() => Some("data"),
        _ => {
            part.fault("", format!("must have exactly one of {}", names.join(", ")));
            None
        }
    }
}

fn read_v10(part: &Object<'_, '_>) -> Option<Part> {
    let content = match only(part, &["text", "raw", "url", "data"])? {
        "text" => PartContent::Text(part.string("text", usize::MAX)?),
        "raw" => PartContent::Raw(bytes(part, "raw")?),
        "url" => PartContent::Url(url(part, "url")?),
        _ => PartContent::Data(Json::part(part.member("data")?)),
    };
    let media_type = part.word("mediaType", MAX_NAME);
    Some(Part {
        content,
        media_type,
        filename: part.word("filename", MAX_NAME),
        metadata: part.metadata("metadata"),
    })
}

fn read_v03(part: &Object<'_, '_>) -> Option<Part> {
    // Before 0.2 the member was called `type`.
    let kind = match part.string("kind", MAX_NAME).or_else(|| part.string("type", MAX_NAME)) {
        Some(kind) => kind,
        None => only(part, &["text", "file", "data"])?.to_owned(),
    };
    match kind.as_str() {
        "text" => {
            if !part.has("text") {
                part.fault("text", "is required");
            }
            let text = part.string("text", usize::MAX)?;
            Some(Part { metadata: part.metadata("metadata"), ..PartContent::Text(text).into() })
        }
        "file" => read_file(part, ["uri", "bytes"]),
        "data" => Some(data_part(data(part)?, part.metadata("metadata"))),
        _ => {
            part.fault("kind", "must be text, file or data");
            None
        }
    }
}

fn read_proto03(part: &Object<'_, '_>) -> Option<Part> {
    match only(part, &["text", "file", "data"])? {
        "text" => {
            let text = part.string("text", usize::MAX)?;
            Some(Part { metadata: part.metadata("metadata"), ..PartContent::Text(text).into() })
        }
        "file" => read_file(part, ["fileWithUri", "fileWithBytes"]),
        _ => {
            let outer = part.object("data")?;
            let data = if outer.has("data") { data(&outer)? } else { Json::part("{}") };
            Some(data_part(data, part.metadata("metadata")))
        }
    }
}

/// Reads a file of 0.3; `uri` and `bytes` are the names of its content.
fn read_file(part: &Object<'_, '_>, [uri, with_bytes]: [&'static str; 2]) -> Option<Part> {
    if !part.has("file") {
        part.fault("file", "is required");
    }
    let file = part.object("file")?;
    let content = match only(&file, &[uri, with_bytes])? {
        name if name == uri => PartContent::Url(url(&file, uri)?),
        _ => PartContent::Raw(bytes(&file, with_bytes)?),
    };
    let media_type = file.word("mimeType", MAX_NAME);
    Some(Part {
        content,
        media_type,
        filename: file.word("name", MAX_NAME),
        metadata: part.metadata("metadata"),
    })
}

/// Reads the data of 0.3, an object.
fn data(part: &Object<'_, '_>) -> Option<Json> {
    if !part.has("data") {
        part.fault("data", "is required");
    }
    part.metadata("data")
}

/// Returns a part of 0.3 data; a marked one has its value unwrapped.
pub(crate) fn data_part(data: Json, metadata: Option<Json>) -> Part {
    let is_wrapped =
        metadata.as_ref().and_then(|all| all.member(WRAPPED_MARK)).is_some_and(|mark| mark.text() == "true");
    let Some(value) = data.member(WRAPPED).filter(|_| is_wrapped) else {
        return Part { metadata, ..PartContent::Data(data).into() };
    };
    let mut rest = metadata.as_ref().map(Members::of).unwrap_or_default();
    rest.remove(WRAPPED_MARK);
    Part { metadata: (!rest.is_empty()).then(|| rest.to_json()), ..PartContent::Data(value).into() }
}

/// Returns data and metadata in the form of 0.3, whose data is an object.
pub(crate) fn data_of_v03(data: &Json, metadata: Option<&Json>) -> (Json, Option<Json>) {
    if data.text().starts_with('{') {
        return (data.clone(), metadata.cloned());
    }
    let mut marked = metadata.map(Members::of).unwrap_or_default();
    marked.insert(WRAPPED_MARK, true);
    (Json::part(writer::object(|writer| writer.raw(WRAPPED, data.text()))), Some(marked.to_json()))
}

fn bytes(object: &Object<'_, '_>, name: &'static str) -> Option<Base64> {
    let bytes = Base64::parse(&object.string(name, usize::MAX)?);
    if bytes.is_none() {
        object.fault(name, "must be base64");
    }
    bytes
}

fn url(object: &Object<'_, '_>, name: &'static str) -> Option<String> {
    let url = object.required(name, MAX_URL);
    object.check_line(name, &url);
    (!url.is_empty()).then_some(url)
}

/// Writes the members of a part.
pub(super) fn write_part(writer: &mut Writer, part: &Part, dialect: Dialect) {
    match dialect {
        Dialect::V10 => write_v10(writer, part),
        Dialect::V03 => write_03(writer, part, ["uri", "bytes"], true),
        Dialect::Proto03 => write_03(writer, part, ["fileWithUri", "fileWithBytes"], false),
    }
}

fn write_v10(writer: &mut Writer, part: &Part) {
    match &part.content {
        PartContent::Text(text) => writer.string("text", text),
        PartContent::Raw(bytes) => writer.string("raw", bytes.as_str()),
        PartContent::Url(url) => writer.string("url", url),
        PartContent::Data(data) => writer.raw("data", data.text()),
    }
    writer.option("mediaType", part.media_type.as_deref());
    writer.option("filename", part.filename.as_deref());
    writer.json("metadata", part.metadata.as_ref());
}

/// Writes a part of 0.3: with `kind`, or else with data one level deeper.
fn write_03(writer: &mut Writer, part: &Part, [uri, bytes]: [&str; 2], has_kind: bool) {
    let kind = |writer: &mut Writer, kind: &str| {
        if has_kind {
            writer.string("kind", kind);
        }
    };
    let file = |writer: &mut Writer, name: &str, content: &str| {
        kind(writer, "file");
        writer.object("file", |file| {
            file.string(name, content);
            file.option("mimeType", part.media_type.as_deref());
            file.option("name", part.filename.as_deref());
        });
        writer.json("metadata", part.metadata.as_ref());
    };
    match &part.content {
        PartContent::Url(url) => file(writer, uri, url),
        PartContent::Raw(content) => file(writer, bytes, content.as_str()),
        PartContent::Text(text) => {
            kind(writer, "text");
            writer.string("text", text);
            writer.json("metadata", part.metadata.as_ref());
        }
        PartContent::Data(data) => {
            kind(writer, "data");
            let (data, metadata) = data_of_v03(data, part.metadata.as_ref());
            match has_kind {
                true => writer.raw("data", data.text()),
                false => writer.object("data", |inner| inner.raw("data", data.text())),
            }
            writer.json("metadata", metadata.as_ref());
        }
    }
}
