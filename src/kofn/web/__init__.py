"""`kofn view`: runs in a browser, from a folder, as they are. Labels are the only thing it writes."""
