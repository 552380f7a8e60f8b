"""What passes between a server and its sites: questions and tasks, rows, messages, studies, and the endpoint of a site.

Everything checks itself where it is made and again where it is read.
May import: privacy and below.
"""
