package org.apache.iceberg;

import java.io.IOException;
import java.io.StringWriter;
import java.util.Iterator;
import java.util.Map;
import org.apache.iceberg.catalog.Catalog;
import org.apache.iceberg.catalog.Namespace;
import org.apache.iceberg.catalog.TableIdentifier;
import org.apache.iceberg.rest.RESTUtil;
import org.apache.iceberg.shaded.com.fasterxml.jackson.core.JsonGenerator;
import org.apache.iceberg.util.JsonUtil;

/**
 * Makes, opens and describes tables by one call over py4j each (docs/decisions/0152): hundreds of tables that are new
 * meet code of the JVM that is cold, and calls of which each costs as much as what it asks for.
 */
public class TailraceTables {
    /** The table; null: there is none. */
    public static Table open(Catalog catalog, String namespace, String name) {
        TableIdentifier identifier = identifier(namespace, name);
        return catalog.tableExists(identifier) ? catalog.loadTable(identifier) : null;
    }

    /** `properties`: as of a form. `days`: the column by whose days it is partitioned, or null; `location`: or null. */
    public static Table create(
            Catalog catalog, String namespace, String name, String schema, String properties, String days,
            String location) {
        Schema fields = SchemaParser.fromJson(schema);
        Catalog.TableBuilder builder = catalog.buildTable(identifier(namespace, name), fields);
        builder.withProperties(RESTUtil.decodeFormData(properties));
        if (days != null) {
            builder.withPartitionSpec(PartitionSpec.builderFor(fields).day(days).build());
        }
        if (location != null) {
            builder.withLocation(location);
        }
        return builder.create();
    }

    /** The version that the object holds, without the table's files, as JSON. */
    public static String describe(Table table) throws IOException {
        TableMetadata metadata = ((HasTableOperations) table).operations().current();
        Snapshot current = metadata.currentSnapshot();
        StringWriter text = new StringWriter();
        JsonGenerator out = JsonUtil.factory().createGenerator(text);
        out.writeStartObject();
        out.writeStringField("uuid", metadata.uuid());
        out.writeStringField("location", metadata.location());
        if (current != null) {
            out.writeNumberField("snapshot", current.snapshotId());
        }
        out.writeNumberField("last-column", metadata.lastColumnId());
        out.writeNumberField("schema-id", metadata.currentSchemaId());
        out.writeFieldName("schema");
        out.writeRawValue(SchemaParser.toJson(metadata.schema()));
        out.writeObjectFieldStart("properties");
        for (Iterator each = metadata.properties().entrySet().iterator(); each.hasNext();) {
            Map.Entry entry = (Map.Entry) each.next();
            out.writeStringField((String) entry.getKey(), (String) entry.getValue());
        }
        out.writeEndObject();
        out.writeEndObject();
        out.close();
        return text.toString();
    }

    private static TableIdentifier identifier(String namespace, String name) {
        return TableIdentifier.of(Namespace.of(new String[] {namespace}), name);
    }
}
