"""Tests the search service of a node with a stock client of Python: elasticsearch-py or opensearch-py.

    search-client-test.py elasticsearch|opensearch URL

The cases are the same for both: helpers.bulk, scan, a point in time, partial updates, conflicts of versions, searches, the
asynchronous client. A line for each case; the last line has the counts.
"""

import asyncio
import sys
import traceback

INDEX = "visits"
DOCUMENTS = 2500
WARDS = ["north", "south", "east", "west"]


class Library:
    """What the two libraries call differently: arguments by name, or one body."""

    def __init__(self, name):
        self.is_elastic = name == "elasticsearch"
        if self.is_elastic:
            import elasticsearch as library
            import elasticsearch.helpers
        else:
            import opensearchpy as library
        self.library = library
        self.helpers = library.helpers
        self.exceptions = library.exceptions
        self.bad_request = library.BadRequestError if self.is_elastic else library.exceptions.RequestError

    def client(self, url):
        if self.is_elastic:
            return self.library.Elasticsearch(url, request_timeout=60)
        return self.library.OpenSearch(url, timeout=60)

    def asynchronous(self, url):
        kind = self.library.AsyncElasticsearch if self.is_elastic else self.library.AsyncOpenSearch
        return kind(url)

    def body(self, **parts):
        return parts if self.is_elastic else {"body": parts}


def source(number):
    return {
        "mrn": str(100000 + number),
        "ward": WARDS[number % len(WARDS)],
        "text": f"visit {number} without acute finding" if number % 10 == 0 else f"visit {number}",
        "beds": number % 7,
        "at": "2026-01-%02dT08:00:00Z" % (number % 28 + 1),
    }


class Cases:
    def __init__(self, library, url):
        self.library = library
        self.url = url
        self.client = library.client(url)

    def the_server_is_accepted(self):
        assert self.client.ping()
        assert self.client.info()["version"]["number"].startswith("8."), self.client.info()

    def an_index_is_made_with_a_mapping(self):
        self.client.indices.create(index=INDEX, **self.library.body(
            settings={"number_of_replicas": 0},
            mappings={"properties": {
                "mrn": {"type": "keyword"}, "ward": {"type": "keyword"}, "text": {"type": "text"},
                "beds": {"type": "integer"}, "at": {"type": "date"},
            }},
        ))
        assert self.client.indices.exists(index=INDEX)
        mapping = self.client.indices.get_mapping(index=INDEX)
        assert mapping[INDEX]["mappings"]["properties"]["at"] == {"type": "date"}, mapping

    def helpers_bulk_writes_all_and_reports_what_fails(self):
        actions = ({"_index": INDEX, "_id": str(n), "_source": source(n)} for n in range(DOCUMENTS))
        done, failed = self.library.helpers.bulk(self.client, actions, chunk_size=500, refresh=True)
        assert (done, failed) == (DOCUMENTS, []), (done, failed)
        wrong = [
            {"_op_type": "create", "_index": INDEX, "_id": "1", "_source": source(1)},
            {"_op_type": "delete", "_index": INDEX, "_id": "none"},
            {"_op_type": "index", "_index": INDEX, "_id": "x", "_source": {"beds": "many"}},
        ]
        done, failed = self.library.helpers.bulk(self.client, wrong, raise_on_error=False)
        statuses = [next(iter(item.values()))["status"] for item in failed]
        assert (done, statuses) == (0, [409, 404, 400]), (done, failed)

    def scan_returns_every_document_once(self):
        hits = self.library.helpers.scan(self.client, index=INDEX, query={"query": {"term": {"ward": "north"}}}, size=100)
        ids = [hit["_id"] for hit in hits]
        assert len(ids) == len(set(ids)) == DOCUMENTS // 4, len(ids)

    def a_point_in_time_does_not_see_later_changes(self):
        if self.library.is_elastic:
            pit = self.client.open_point_in_time(index=INDEX, keep_alive="1m")["id"]
        else:
            pit = self.client.create_pit(index=INDEX, params={"keep_alive": "1m"})["pit_id"]
        self.client.index(index=INDEX, id="later", refresh=True, **self.document(source(3)))
        seen, after = set(), None
        while True:
            query = {"size": 400, "pit": {"id": pit, "keep_alive": "1m"}, "sort": [{"mrn": "asc"}]}
            page = self.client.search(**self.library.body(**query, **({"search_after": after} if after else {})))["hits"]["hits"]
            if not page:
                break
            seen.update(hit["_id"] for hit in page)
            after = page[-1]["sort"]
        assert len(seen) == DOCUMENTS and "later" not in seen, len(seen)
        if self.library.is_elastic:
            assert self.client.close_point_in_time(id=pit)["num_freed"] == 1
        else:
            self.client.delete_pit(body={"pit_id": [pit]})
        self.client.delete(index=INDEX, id="later", refresh=True)

    def document(self, source):
        return {"document": source} if self.library.is_elastic else {"body": source}

    def a_partial_update_changes_one_field_and_inserts_where_that_is_asked_for(self):
        result = self.client.update(index=INDEX, id="5", **self.library.body(doc={"beds": 99}))
        assert (result["result"], result["_version"]) == ("updated", 2), result
        found = self.client.get(index=INDEX, id="5")["_source"]
        assert found == {**source(5), "beds": 99}, found
        assert self.client.update(index=INDEX, id="5", **self.library.body(doc={"beds": 99}))["result"] == "noop"
        created = self.client.update(index=INDEX, id="new", **self.library.body(doc={"beds": 1}, doc_as_upsert=True))
        assert created["result"] == "created", created
        self.client.delete(index=INDEX, id="new")

    def a_change_from_an_old_version_is_a_conflict(self):
        got = self.client.get(index=INDEX, id="7")
        place = {"if_seq_no": got["_seq_no"], "if_primary_term": got["_primary_term"]}
        assert self.client.index(index=INDEX, id="7", **self.document(source(7)), **place)["result"] == "updated"
        try:
            self.client.index(index=INDEX, id="7", **self.document(source(7)), **place)
        except self.library.exceptions.ConflictError as error:
            assert "version_conflict_engine_exception" in str(error), error
        else:
            raise AssertionError("no conflict")
        try:
            self.client.get(index=INDEX, id="no such")
        except self.library.exceptions.NotFoundError:
            return
        raise AssertionError("it was found")

    def searches_count_sort_and_aggregate(self):
        self.client.indices.refresh(index=INDEX)
        found = self.client.search(index=INDEX, **self.library.body(
            query={"bool": {"must": {"match_phrase": {"text": "acute finding"}}, "filter": {"term": {"ward": "north"}}}},
            sort=[{"at": "desc"}, {"mrn": "asc"}], size=3,
            aggs={"wards": {"terms": {"field": "ward"}}, "beds": {"avg": {"field": "beds"}}},
        ))
        wanted = [n for n in range(DOCUMENTS) if n % 10 == 0 and n % 4 == 0]
        assert found["hits"]["total"] == {"value": len(wanted), "relation": "eq"}, found["hits"]["total"]
        first = sorted(wanted, key=lambda n: (-(n % 28), n))[:3]
        assert [int(hit["_id"]) for hit in found["hits"]["hits"]] == first, found["hits"]["hits"]
        assert found["aggregations"]["wards"]["buckets"] == [{"key": "north", "doc_count": len(wanted)}]
        assert abs(found["aggregations"]["beds"]["value"] - sum(n % 7 for n in wanted) / len(wanted)) < 1e-9
        assert self.client.count(index=INDEX, **self.library.body(query={"prefix": {"mrn": "1000"}}))["count"] == 100

    def a_query_that_is_none_is_an_error_with_a_reason(self):
        try:
            self.client.search(index=INDEX, **self.library.body(query={"no_such_query": {}}))
        except self.library.bad_request as error:
            assert "no_such_query" in str(error), error
            return
        raise AssertionError("it was accepted")

    def the_asynchronous_client_works_with_many_requests_at_a_time(self):
        async def work():
            client = self.library.asynchronous(self.url)
            try:
                await asyncio.gather(*(
                    client.index(index="later", id=str(n), **self.document({"n": n})) for n in range(40)
                ))
                await client.indices.refresh(index="later")
                counts = await asyncio.gather(*(client.count(index="later") for _ in range(20)))
                assert all(count["count"] == 40 for count in counts), counts
            finally:
                await client.close()

        asyncio.run(work())


def main():
    name, url = sys.argv[1:]
    cases = Cases(Library(name), url)
    passed = failed = 0
    for case in [key for key in vars(Cases) if not key.startswith("__") and key != "document"]:
        try:
            getattr(cases, case)()
            passed += 1
            print(f"passed {name}: {case.replace('_', ' ')}")
        except Exception:
            failed += 1
            print(f"FAILED {name}: {case.replace('_', ' ')}")
            traceback.print_exc(file=sys.stdout)
    for index in (INDEX, "later"):
        cases.client.indices.delete(index=index, ignore_unavailable=True)
    print(f"{passed} passed, {failed} failed")


if __name__ == "__main__":
    main()
