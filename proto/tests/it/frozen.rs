//! The first publication of the two gRPC contracts never changes: not a number, not a type, not a label. Additions of
//! the platform to its messages have numbers from 100 on.

use std::collections::BTreeSet;

use prost::Message;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{
    DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet,
    MethodDescriptorProto,
};

const PLUGIN: &str = include_str!("../seed/plugin.txt");
const SUPERVISOR: &str = include_str!("../seed/supervisor.txt");
/// First number of the platform's own fields.
const OWN: i32 = 100;

fn file(name: &str) -> FileDescriptorProto {
    let set = FileDescriptorSet::decode(asp_proto::GRPC_DESCRIPTORS).unwrap();
    set.file.into_iter().find(|file| file.name() == name).unwrap()
}

/// Returns the rows of a table, without comments.
fn rows(table: &str) -> BTreeSet<String> {
    table.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::to_owned).collect()
}

/// Returns every message, enum and service of a file, with a row for each field, value and method.
fn written(file: &FileDescriptorProto) -> BTreeSet<String> {
    let mut rows = BTreeSet::new();
    for message in &file.message_type {
        write_message(message, &mut rows);
    }
    for found in &file.enum_type {
        write_enum(found, "", &mut rows);
    }
    for service in &file.service {
        rows.extend(service.method.iter().map(|method| method_row(service.name(), method)));
    }
    rows
}

fn write_message(message: &DescriptorProto, rows: &mut BTreeSet<String>) {
    rows.extend(message.field.iter().map(|field| field_row(message, field)));
    for found in &message.enum_type {
        write_enum(found, &format!("{}.", message.name()), rows);
    }
}

fn write_enum(found: &EnumDescriptorProto, within: &str, rows: &mut BTreeSet<String>) {
    for value in &found.value {
        rows.insert(format!("{within}{}.{} = {}", found.name(), value.name(), value.number()));
    }
}

fn field_row(message: &DescriptorProto, field: &FieldDescriptorProto) -> String {
    let place = format!("{}.{} = {}", message.name(), field.name(), field.number());
    let entry = message.nested_type.iter().find(|nested| {
        nested.options.as_ref().is_some_and(|options| options.map_entry())
            && field.type_name().ends_with(&format!(".{}", nested.name()))
    });
    if let Some(entry) = entry {
        return format!("{place} map<{},{}>", type_name(&entry.field[0]), type_name(&entry.field[1]));
    }
    let label = match (field.label(), field.oneof_index) {
        (Label::Repeated, _) => "repeated".to_owned(),
        (_, Some(_)) if field.proto3_optional() => "optional".to_owned(),
        (_, Some(index)) => format!("oneof {}", message.oneof_decl[index as usize].name()),
        (_, None) => "singular".to_owned(),
    };
    format!("{place} {} {label}", type_name(field))
}

fn type_name(field: &FieldDescriptorProto) -> String {
    match field.r#type() {
        Type::Message | Type::Enum => last(field.type_name()).to_owned(),
        scalar => scalar.as_str_name().trim_start_matches("TYPE_").to_lowercase(),
    }
}

fn method_row(service: &str, method: &MethodDescriptorProto) -> String {
    let side = |stream: bool, name: &str| format!("{}{}", if stream { "stream " } else { "" }, last(name));
    let request = side(method.client_streaming(), method.input_type());
    let answer = side(method.server_streaming(), method.output_type());
    format!("{service}.{}({request}) returns ({answer})", method.name())
}

fn last(name: &str) -> &str {
    name.rsplit('.').next().unwrap()
}

#[test]
fn every_row_of_the_seed_is_in_the_contracts_as_it_was() {
    for (name, table, most) in [("plugin.proto", PLUGIN, 113), ("supervisor.proto", SUPERVISOR, 89)] {
        let rows = rows(table);
        let written = written(&file(name));
        assert_eq!(rows.len(), most, "{name}: the table itself was changed");
        let changed: Vec<_> = rows.difference(&written).collect();
        assert!(changed.is_empty(), "{name}: {changed:#?}");
    }
}

#[test]
fn what_the_platform_adds_to_the_seeds_messages_has_numbers_of_its_own() {
    for (name, table) in [("plugin.proto", PLUGIN), ("supervisor.proto", SUPERVISOR)] {
        let rows = rows(table);
        for message in &file(name).message_type {
            let prefix = format!("{}.", message.name());
            if !rows.iter().any(|row| row.starts_with(&prefix)) {
                continue;
            }
            for field in message.field.iter().filter(|field| !rows.contains(&field_row(message, field))) {
                assert!(field.number() >= OWN, "{name}: {prefix}{}", field.name());
            }
        }
    }
}

#[test]
fn a_changed_number_type_or_label_would_be_noticed() {
    let before = rows(SUPERVISOR);
    for change in [
        |field: &mut FieldDescriptorProto| field.number = Some(9),
        |field: &mut FieldDescriptorProto| field.r#type = Some(Type::Bytes as i32),
        |field: &mut FieldDescriptorProto| field.label = Some(Label::Repeated as i32),
        |field: &mut FieldDescriptorProto| field.name = Some("renamed".into()),
    ] {
        let mut changed = file("supervisor.proto");
        let message =
            changed.message_type.iter_mut().find(|message| message.name() == "TunnelHandle").unwrap();
        change(&mut message.field[0]);
        assert_eq!(before.difference(&written(&changed)).count(), 1);
    }
}
