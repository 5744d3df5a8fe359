// Tests an SQL server with a PostgreSQL driver of Node: pg and its Pool. test-sql-drivers.sh calls it and passes the address.
//
// Each case has the expectation as its name. Cases share only the server.

import pg from "pg";

const [connectionString] = process.argv.slice(2);

function expect(found, wanted) {
  const [a, b] = [JSON.stringify(found), JSON.stringify(wanted)];
  if (a !== b) throw new Error(`${a.slice(0, 200)}, not ${b.slice(0, 200)}`);
}

/** Runs work with a pool, and always ends the pool. */
async function pooled(options, work) {
  const pool = new pg.Pool({ connectionString, max: 4, connectionTimeoutMillis: 20000, ...options });
  try {
    await work(pool);
  } finally {
    await pool.end();
  }
}

const cases = {
  "a pool takes a statement timeout as an option of its connections": () =>
    pooled({ statement_timeout: 7000 }, async (pool) => {
      expect((await pool.query("show statement_timeout")).rows, [{ statement_timeout: "7s" }]);
    }),
  "a pool answers many at once, each with its own rows": () =>
    pooled({}, async (pool) => {
      const asked = Array.from({ length: 200 }, (_, n) => pool.query("select $1::int + 1 as n", [n]));
      const rows = (await Promise.all(asked)).map((answer) => answer.rows[0].n);
      expect(rows, Array.from({ length: 200 }, (_, n) => n + 1));
    }),
  "values come back as what they went in": () =>
    pooled({}, async (pool) => {
      await pool.query("create table node_values (id integer primary key, note text, yes boolean, at timestamptz)");
      const at = new Date("2024-02-29T12:00:00.123Z");
      await pool.query("insert into node_values values ($1, $2, $3, $4)", [1, "a\tb\\'", true, at]);
      const { rows } = await pool.query("select * from node_values where id = $1", [1]);
      expect(rows, [{ id: 1, note: "a\tb\\'", yes: true, at }]);
    }),
  "a transaction that is rolled back leaves nothing, and its connection goes on": () =>
    pooled({ max: 1 }, async (pool) => {
      await pool.query("create table node_undone (id integer primary key)");
      const client = await pool.connect();
      try {
        await client.query("begin");
        await client.query("insert into node_undone values (1)");
        const code = await client.query("insert into node_undone values (1)").catch((error) => error.code);
        expect(code, "23505");
        await client.query("rollback");
      } finally {
        client.release();
      }
      expect((await pool.query("select count(*)::int as n from node_undone")).rows, [{ n: 0 }]);
    }),
};

let passed = 0;
let failed = 0;
for (const [name, run] of Object.entries(cases)) {
  try {
    await run();
    passed += 1;
    console.log(`ok node: ${name}`);
  } catch (error) {
    failed += 1;
    console.log(`FAILED node: ${name}: ${error.message}`);
  }
}
console.log(`${passed} passed, ${failed} failed`);
process.exitCode = failed > 0 ? 1 : 0;
