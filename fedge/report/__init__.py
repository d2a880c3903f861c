"""The report of a run, the comparison of several, the list of all: what a person looks at afterwards.

Everything here reads run folders and nothing else, so a page can be made again at any time. This package
imports nothing by itself: Matplotlib and Polars are loaded only when a page is made.

    page        what a page consists of, and the page itself
    palette     colours;  svg: figures as inline SVG;  tables: numbers as text
    run_page    the report: one module per section (accuracy, clients, clustering, gate, windows, cost with
                timelines, memory, setup)
    grouping    runs → groups that differ only in seed;  statistics: means and intervals over seeds
    compare_page  the comparison
    listing     the list of runs
    at_end      what a run calls when it has ended;  commands: what the command line calls
"""
