//! Any bytes as a JSON-RPC body: no panic, the scan accepts the same syntax as a decoder, and the text of a value
//! passes through unchanged.
#![no_main]

use asp_edge::Reason;
use asp_edge::envelope::{Binding, scan};
use asp_json::{Cursor, Json};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| {
    let json = Json::parse(body);
    let decodes = std::str::from_utf8(body).is_ok_and(|text| asp_json::decode(text).is_ok());
    assert_eq!(json.is_ok(), decodes);
    if let Ok(json) = &json {
        let text = std::str::from_utf8(body).unwrap().trim_matches([' ', '\t', '\n', '\r']);
        assert_eq!(json.text(), text.replace(['\n', '\r'], " "));
        let _ = asp_json::losses(json.text());
        let mut changed = json.view().clone();
        if let Some(members) = changed.as_object_mut() {
            members.insert("added".into(), true.into());
        }
        assert_eq!(asp_json::decode(json.changed_to(changed.clone()).text()), Ok(changed));
    }
    let beyond_double = Cursor::new(body).is_ok_and(|mut cursor| {
        let _ = cursor.value();
        cursor.beyond_double
    });
    let is_json = decodes && !beyond_double;
    match scan(body, Binding::McpBatches) {
        Err(Reason::ParseError) => assert!(!is_json),
        Err(reason) => assert!(is_json && reason == Reason::InvalidRequest),
        Ok(envelope) => {
            assert!(is_json);
            if let Some(id) = envelope.id {
                assert!(asp_json::decode(&id).is_ok());
            }
        }
    }
});
