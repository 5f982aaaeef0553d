from skillopt_airflow.core.found_document import FoundDocument, listed_documents

PAGE = FoundDocument(title="Council", url="https://a.example/1", date="2026-01-31", text="The mayor is A. Lind.")


def test_a_document_is_shown_with_what_is_known_of_it() -> None:
    assert PAGE.as_text() == "title: Council\nurl: https://a.example/1\ndate: 2026-01-31\nThe mayor is A. Lind."
    assert PAGE.as_text(9).endswith("The mayor [...]")
    assert PAGE.as_text(len(PAGE.text)) == PAGE.as_text()
    assert listed_documents([PAGE, FoundDocument(text="alone")]).endswith("Lind.\n\n[2]\nalone")
