import java.sql.Connection;
import java.sql.DatabaseMetaData;
import java.sql.DriverManager;
import java.sql.ParameterMetaData;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.sql.Timestamp;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;

/**
 * Tests an SQL server with the JDBC driver of PostgreSQL: the calls of programs, and the metadata queries of tools. test-sql-drivers.sh
 * calls it and passes the address. Each case has the expectation as its name; cases share only the server.
 */
public final class SqlClientTest {
    private static String url;

    private interface Case {
        void run(Connection connection) throws Exception;
    }

    private interface Question {
        ResultSet ask() throws SQLException;
    }

    public static void main(String[] words) {
        url = words[0];
        int failed = 0;
        String[] names = {
            "batches, pages of rows and SQLSTATEs", "primary keys", "columns with types, defaults and what is NOT NULL",
            "indexes", "no foreign keys", "tables, views, schemas, catalogs and types", "parameters, results and generated keys",
        };
        Case[] cases = {
            SqlClientTest::batches, SqlClientTest::primaryKeys, SqlClientTest::columns, SqlClientTest::indexes,
            SqlClientTest::foreignKeys, SqlClientTest::catalogs, SqlClientTest::described,
        };
        for (int at = 0; at < cases.length; at++) {
            try (Connection connection = connect()) {
                cases[at].run(connection);
                System.out.println("ok java: " + names[at]);
            } catch (Exception | AssertionError error) {
                failed++;
                System.out.println("FAILED java: " + names[at] + ": " + error.getMessage());
            }
        }
        System.out.println((cases.length - failed) + " passed, " + failed + " failed");
        System.exit(failed == 0 ? 0 : 1);
    }

    private static Connection connect() throws SQLException {
        Properties settings = new Properties();
        settings.setProperty("user", "ann");
        settings.setProperty("password", "s3cret");
        return DriverManager.getConnection(url, settings);
    }

    private static void batches(Connection connection) throws SQLException {
        run(connection, "create table jdbc_rows (id integer primary key, note text, at timestamp)");
        connection.setAutoCommit(false);
        try (PreparedStatement insert = connection.prepareStatement("insert into jdbc_rows values (?, ?, ?)")) {
            for (int id = 0; id < 100; id++) {
                insert.setInt(1, id);
                insert.setString(2, id % 2 == 0 ? null : "note " + id);
                insert.setTimestamp(3, Timestamp.valueOf("2024-02-29 12:00:00.5"));
                insert.addBatch();
            }
            check(insert.executeBatch().length == 100, "a batch");
        }
        connection.commit();
        try (PreparedStatement select = connection.prepareStatement("select id, note from jdbc_rows where id >= ? order by id")) {
            select.setFetchSize(7);
            for (int turn = 0; turn < 10; turn++) {
                select.setInt(1, 10);
                int expected = 10;
                try (ResultSet rows = select.executeQuery()) {
                    while (rows.next()) {
                        check(rows.getInt(1) == expected, "row " + expected);
                        check((rows.getString(2) == null) == (expected % 2 == 0), "note " + expected);
                        expected++;
                    }
                }
                check(expected == 100, "all rows, fetched seven at a time");
            }
        }
        try {
            run(connection, "select 1/0");
            check(false, "division by zero");
        } catch (SQLException error) {
            check("22012".equals(error.getSQLState()), "SQLSTATE " + error.getSQLState());
        }
        connection.rollback();
        check("PostgreSQL".equals(connection.getMetaData().getDatabaseProductName()), "the product's name");
        check(connection.isValid(5) && "public".equals(connection.getSchema()), "the schema");
    }

    private static void primaryKeys(Connection connection) throws SQLException {
        run(connection, "create table jdbc_keys (b integer, a integer, note text, primary key (a, b))");
        run(connection, "create table jdbc_keyless (a integer)");
        DatabaseMetaData about = connection.getMetaData();
        same(rows(() -> about.getPrimaryKeys(null, "public", "jdbc_keys"), "COLUMN_NAME", "KEY_SEQ", "PK_NAME"),
            "a|1|jdbc_keys_pkey", "b|2|jdbc_keys_pkey");
        same(rows(() -> about.getPrimaryKeys(null, null, "jdbc_keyless"), "COLUMN_NAME"));
        same(rows(() -> about.getBestRowIdentifier(null, "public", "jdbc_keys", DatabaseMetaData.bestRowSession, true),
            "COLUMN_NAME", "TYPE_NAME"), "b|int4", "a|int4");
    }

    private static void columns(Connection connection) throws SQLException {
        run(connection, "create table jdbc_columns (id bigint primary key, note varchar(20) not null default 'x', price numeric(10,2), at timestamptz)");
        same(rows(() -> connection.getMetaData().getColumns(null, null, "jdbc_columns", null),
            "COLUMN_NAME", "TYPE_NAME", "COLUMN_SIZE", "DECIMAL_DIGITS", "IS_NULLABLE", "COLUMN_DEF"),
            "id|int8|19|0|NO|null", "note|varchar|20|0|NO|'x'", "price|numeric|10|2|YES|null", "at|timestamptz|35|6|YES|null");
    }

    private static void indexes(Connection connection) throws SQLException {
        run(connection, "create table jdbc_indexed (b integer, a integer, primary key (a, b))");
        same(rows(() -> connection.getMetaData().getIndexInfo(null, null, "jdbc_indexed", true, false),
            "INDEX_NAME", "NON_UNIQUE", "ORDINAL_POSITION", "COLUMN_NAME", "ASC_OR_DESC"),
            "jdbc_indexed_pkey|f|1|a|A", "jdbc_indexed_pkey|f|2|b|A");
    }

    private static void foreignKeys(Connection connection) throws SQLException {
        run(connection, "create table jdbc_alone (a integer primary key)");
        DatabaseMetaData about = connection.getMetaData();
        same(rows(() -> about.getImportedKeys(null, null, "jdbc_alone"), "FK_NAME"));
        same(rows(() -> about.getExportedKeys(null, null, "jdbc_alone"), "FK_NAME"));
        same(rows(() -> about.getCrossReference(null, null, "jdbc_alone", null, null, "jdbc_alone"), "FK_NAME"));
    }

    private static void catalogs(Connection connection) throws SQLException {
        run(connection, "create table jdbc_told (a integer)");
        run(connection, "create view jdbc_seen as select a from jdbc_told");
        DatabaseMetaData about = connection.getMetaData();
        same(rows(() -> about.getTables(null, "public", "jdbc_told", new String[] {"TABLE"}), "TABLE_NAME", "TABLE_TYPE"), "jdbc_told|TABLE");
        same(rows(() -> about.getTables(null, null, "jdbc_seen", null), "TABLE_NAME", "TABLE_TYPE"), "jdbc_seen|VIEW");
        check(rows(about::getSchemas, "TABLE_SCHEM").contains("public"), "the schema public");
        check(rows(about::getCatalogs, "TABLE_CAT").contains("terrace"), "the database");
        check(rows(about::getTypeInfo, "TYPE_NAME").contains("int4"), "the type int4");
        check(rows(about::getTableTypes, "TABLE_TYPE").contains("VIEW"), "a kind of table");
    }

    private static void described(Connection connection) throws SQLException {
        run(connection, "create table jdbc_described (id integer primary key, note text, price numeric(10,2))");
        try (PreparedStatement select = connection.prepareStatement("select id + 1, note, price from jdbc_described where id = ? and price > ?")) {
            ParameterMetaData parameters = select.getParameterMetaData();
            check("int4".equals(parameters.getParameterTypeName(1)), parameters.getParameterTypeName(1));
            check("numeric".equals(parameters.getParameterTypeName(2)), parameters.getParameterTypeName(2));
            check("int4".equals(select.getMetaData().getColumnTypeName(1)), select.getMetaData().getColumnTypeName(1));
        }
        String insert = "insert into jdbc_described values (?, ?)";
        try (PreparedStatement change = connection.prepareStatement(insert, Statement.RETURN_GENERATED_KEYS)) {
            change.setInt(1, 3);
            change.setString(2, "n");
            change.executeUpdate();
            try (ResultSet keys = change.getGeneratedKeys()) {
                check(keys.next() && keys.getInt("id") == 3, "the key");
            }
        }
        try (PreparedStatement any = connection.prepareStatement("select id from jdbc_described where id = any (?)")) {
            any.setArray(1, connection.createArrayOf("int4", new Integer[] {2, 3}));
            same(rows(any::executeQuery, "id"), "3");
        }
    }

    private static void run(Connection connection, String sql) throws SQLException {
        try (Statement statement = connection.createStatement()) {
            statement.execute(sql);
        }
    }

    /** The given columns of all rows, separated by bars. */
    private static List<String> rows(Question question, String... columns) throws SQLException {
        List<String> found = new ArrayList<>();
        try (ResultSet rows = question.ask()) {
            while (rows.next()) {
                List<String> cells = new ArrayList<>();
                for (String column : columns) {
                    cells.add(rows.getString(column));
                }
                found.add(String.join("|", cells.stream().map(String::valueOf).toList()));
            }
        }
        return found;
    }

    private static void same(List<String> found, String... expected) {
        check(found.equals(List.of(expected)), found + ", not " + List.of(expected));
    }

    private static void check(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError(what);
        }
    }
}
